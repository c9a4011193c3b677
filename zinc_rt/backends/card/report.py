"""The report on this machine's AMD GPUs: facts, and each interface step by step, in one tree of plain values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from zinc_rt.backends.card import facts
from zinc_rt.backends.card.private import scrubbed, secrets
from zinc_rt.backends.card.steps import InterfaceSteps, run_steps
from zinc_rt.backends.probe import Gpu, find_gpus
from zinc_rt.lang.cache import CompileCache
from zinc_rt.linux import Linux

SCHEMA: Final = "zinc-card-report"
VERSION: Final = 1
"""Goes up when a field changes its meaning or goes; a new field changes nothing."""
INTERFACES: Final = ("cs", "kfd", "umq")
"""In the order in which they are tried: what leaves least behind when it hangs comes first."""


def card_report(
    linux: Linux, cache: CompileCache, version: str, keep: Callable[[dict[str, Any]], None] = lambda report: None
) -> dict[str, Any]:
    """Try every interface of every card that amdgpu drives, and report it. Never raises a `ZincError`.

    Args:
        linux: the machine.
        cache: where compiled kernels are kept.
        version: of the package.
        keep: gets the report so far before each step, whose name is under "running": of a machine that stops, the
            last one remains.

    Returns:
        Plain values for JSON, without anything that names a person, a machine or one piece of hardware. "constants" of
        a card: the cost model's, measured; None, since nothing measures them yet.
    """
    words = secrets(linux)
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "schema_version": VERSION,
        "software": facts.software(version),
        "system": facts.system(linux) if linux.is_linux else {},
        "running": None,
        "cards": [],
    }
    for gpu in find_gpus(linux):
        about = {**facts.card(linux, gpu), "interfaces": {}, "constants": None}
        report["cards"].append(about)
        if gpu.open_errno is None and not gpu.refusal():
            _try(about, gpu, linux, cache, lambda running: keep(scrubbed({**report, "running": running}, words)))
    final: dict[str, Any] = scrubbed(report, words)
    keep(final)
    return final


def _try(
    about: dict[str, Any], gpu: Gpu, linux: Linux, cache: CompileCache, keep: Callable[[dict[str, str]], None]
) -> None:
    for name in INTERFACES:

        def reached(found: InterfaceSteps, step: str, name: str = name) -> None:
            about["interfaces"][name] = found.as_dict()
            keep({"render_node": gpu.render_node, "interface": name, "step": step})

        about["interfaces"][name] = run_steps(name, gpu.render_node, linux, cache, reached).as_dict()
