"""The report on this machine's AMD GPUs: facts, and each interface step by step, in one tree of plain values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from zinc_rt.amdgpu.gfx import gfx_of
from zinc_rt.backends.diagnostics import facts
from zinc_rt.backends.diagnostics.crash_log import Contacts, situation
from zinc_rt.backends.diagnostics.private import scrubbed, secrets
from zinc_rt.backends.diagnostics.steps import InterfaceSteps, measured_constants, run_steps
from zinc_rt.backends.probe import AmdCard, find_gpus
from zinc_rt.lang.cache import CompileCache
from zinc_rt.utils.installation import software
from zinc_rt.utils.linux import Linux

SCHEMA: Final = "zinc-card-report"
VERSION: Final = 1
"""Goes up when a field changes its meaning or goes; a new field changes nothing."""


def card_report(
    linux: Linux, cache: CompileCache, keep: Callable[[dict[str, Any]], None] = lambda report: None
) -> dict[str, Any]:
    """Try every interface of every card that amdgpu drives, and report it. Never raises a `ZincError`.

    Args:
        linux: the machine.
        cache: where compiled kernels are kept.
        keep: gets the report so far before each step, whose name is under "running": of a machine that stops, the
            last one remains.

    Returns:
        Plain values for JSON, without anything that names a person, a machine or one piece of hardware. "constants" of
        a card: the cost model's, as its first interface that works measured them; None where none works.
    """
    words = secrets(linux)
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "schema_version": VERSION,
        "software": software(),
        "system": facts.system(linux) if linux.is_linux else {},
        "running": None,
        "cards": [],
    }
    for gpu in find_gpus(linux):
        about = {**facts.card(linux, gpu), "interfaces": {}, "constants": None}
        report["cards"].append(about)
        if gpu.eligible:
            _try(about, gpu, linux, cache, lambda now: keep(scrubbed({**report, "running": now}, words)))
    final: dict[str, Any] = scrubbed(report, words)
    keep(final)
    return final


def _try(
    about: dict[str, Any], gpu: AmdCard, linux: Linux, cache: CompileCache, keep: Callable[[dict[str, str]], None]
) -> None:
    gfx, contacts = gfx_of(gpu.gfx_target_version), Contacts(cache.path, linux)
    assert gfx is not None, "it is not refused"
    for name in gfx.interfaces:
        now = {"render_node": gpu.render_node, "interface": name}

        def reached(found: InterfaceSteps, step: str, now: dict[str, str] = now) -> None:
            about["interfaces"][now["interface"]] = found.as_dict()
            keep({**now, "step": step})

        situated = situation(linux, gpu, name)
        with contacts.trial(situated):
            found = run_steps(name, gpu.render_node, linux, cache, reached)
            about["interfaces"][name] = found.as_dict()
            if found.ok and about["constants"] is None:
                keep({**now, "step": "constants"})
                about["constants"] = measured_constants(name, gpu.render_node, linux, cache)
        # For `auto` and `zinc check`.
        if found.ok:
            contacts.proven(situated)
        elif found.failure is not None:
            contacts.remember(situated, found.failure)
