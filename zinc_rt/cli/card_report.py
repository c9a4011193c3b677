"""`zinc check --report`: the report on AMD GPUs as a file, and a summary to paste into an issue."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zinc_rt.cli.files import write_file
from zinc_rt.cli.terminal import say, write
from zinc_rt.utils.linux import Linux, host


def report(path: Path, cache_dir: Path | None, *, as_json: bool = False, linux: Linux | None = None) -> int:
    """Write the report and print its summary, or the whole as JSON. Exit code 0 when an interface of some card gave
    right results, else 1.

    The file is there from the first step on, so that of a machine that stops something remains. Raises
    `CommandError`.
    """
    from zinc_rt.backends.diagnostics.report import card_report
    from zinc_rt.lang.cache import CompileCache, default_cache_dir

    say("trying every interface of every AMD GPU; a fault may reset the card, and the screen with it")
    cache = CompileCache(cache_dir or default_cache_dir())
    found = card_report(linux or host(), cache, lambda tree: _keep(path, tree))
    write((_json(found) if as_json else "\n".join(summary(found))) + "\n")
    say(f"the whole report is in {path}; read it, and attach it to the issue")
    return 0 if any(way["ok"] for card in found["cards"] for way in card["interfaces"].values()) else 1


def _keep(path: Path, tree: dict[str, Any]) -> None:
    """Whole or not at all, and on the disk when this returns."""
    write_file(path, _json(tree) + "\n")
    if path.is_file():
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _json(tree: dict[str, Any]) -> str:
    return json.dumps(tree, ensure_ascii=False, indent=1)


def summary(found: dict[str, Any]) -> Iterator[str]:
    """Lines of Markdown."""
    software, system = found["software"], found["system"]
    commit = f" ({software['commit'][:12]})" if software["commit"] else ""
    yield f"**ZINC_RT {software['version']}{commit}**, {software['python']}, LLVM {software['llvm'] or 'missing'}"
    if system:
        set_ = (f"{name}={value}" for name, value in system["parameters"].items() if value is not None)
        yield f"Linux {system['kernel']}; amdgpu: {', '.join(set_) or 'no parameters'}"
    if not found["cards"]:
        yield ""
        yield "No GPU that amdgpu drives."
    for card in found["cards"]:
        yield ""
        yield from _card(card)


def _card(card: dict[str, Any]) -> Iterator[str]:
    pci, clocks = card["pci"], card["clocks_mhz"]
    ids = ":".join((pci[name] or "?").removeprefix("0x") for name in ("vendor", "device"))
    mapped = f", {card['gtt'] / 2**30:.1f} GiB of GTT" if card["integrated"] else ""
    yield (
        f"**{card['name'] or 'AMD GPU'}** ({ids}), {card['gfx']}, {card['compute_units']} compute units,"
        f" {card['vram'] / 2**30:.1f} GiB of VRAM ({card['visible_vram'] / 2**30:.1f} visible){mapped},"
        f" up to {clocks.get('max_engine', 0):.0f} MHz, memory {clocks.get('max_memory', 0):.0f} MHz"
    )
    yield "firmware: " + ", ".join(
        f"{name} {of['version']:#x}" for name, of in card["firmware"].items() if of["version"]
    )
    if (kfd := card["kfd"]) is not None:
        kernel, computed = kfd["kernel"], kfd["computed"]
        same = "as computed" if kernel == computed else f"computed {computed}"
        yield f"save area {kernel['save_area']}, control stack {kernel['control_stack']} bytes: {same}"
    if card["refused"]:
        yield f"not tried: {card['refused']}"
        return
    yield ""
    yield "| interface | " + " | ".join(_STEPS) + " | fence | step |"
    yield "|---" * (len(_STEPS) + 3) + "|"
    for name, way in card["interfaces"].items():
        cells = (_cell(way["steps"].get(step)) for step in _STEPS)
        fence, step = (_time(way["seconds"].get(f"median_{what}")) for what in ("fence", "step"))
        yield f"| {name} | {' | '.join(cells)} | {fence} | {step} |"
    if card["constants"]:
        yield ""
        yield "measured: " + ", ".join(f"{name} {_constant(name, n)}" for name, n in card["constants"].items())
    for name, way in card["interfaces"].items():
        for step, of in way["steps"].items():
            if not of["ok"]:
                yield f"- {name}, {step}: {of['error']}" + (f" (errno {of['errno']})" if of.get("errno") else "")
                if of.get("help"):
                    yield f"  {of['help']}"
        if way["differs"]:
            yield f"- {name}, first difference: {way['differs']}"


def _constant(name: str, number: float | str) -> str:
    if isinstance(number, str):
        return number
    return f"{number / 1e9:.0f} GB/s" if name == "bandwidth" else f"{number * 1e9:.0f} ns"


_STEPS = ("opened", "memory", "queue", "fence", "kernels", "results")


def _cell(step: dict[str, Any] | None) -> str:
    return "-" if step is None else "ok" if step["ok"] else "**failed**"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:.0f} us"
