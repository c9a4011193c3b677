"""Each step on the way to right results through one interface: what it took, or how it failed."""

from __future__ import annotations

import contextlib
import errno
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from zinc_rt.amdgpu.advice import KERNEL_LOG, remedy
from zinc_rt.amdgpu.errors import BufferFailed, CallFailed, InterfaceError, StepFailed
from zinc_rt.amdgpu.interface import Heap, Interface
from zinc_rt.amdgpu.selftest import probe
from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.backends.base import CheckedStep, LoweredGraph, StepFence
from zinc_rt.backends.diagnostics.differences import first_difference
from zinc_rt.backends.gpu.selftest import WrongResults, check_results
from zinc_rt.backends.probe import PROBE_SECONDS, open_interface
from zinc_rt.errors import ZincError, release_frames
from zinc_rt.kernels.gpu.catalogue import DECODE
from zinc_rt.lang.cache import CompileCache
from zinc_rt.lang.gpu_library import gpu_kernels
from zinc_rt.utils.closing import closed_on_failure
from zinc_rt.utils.linux import PAGE, Linux

STEPS: Final = ("opened", "memory", "queue", "fence", "kernels", "results")
"""In order: the device answers; memory is allocated and mapped; a queue is made; a write by the GPU and its fence; a
kernel is compiled and loaded; a small model's step gives the reference's bits.
"""
REPEATS: Final = 5
_QUEUE: Final = (
    "create_queue", "destroy_queue", "doorbell", "userq", "ctx_alloc", "no_rings", "runtime_enable", "event",
    "compute_userq", "fw_metadata", "user_queue", "kernel_too_old",
)  # fmt: skip
_MEMORY: Final = ("bo_", "alloc_failed", "map_", "mmap", "gem_", "va_")  # parts of names


@dataclass
class InterfaceSteps:
    """The steps of one interface.

    steps: by the names of `STEPS`, as far as it got: {"ok", "seconds"}, of the failed one also "error", "word",
    "errno", "help". seconds: of `REPEATS` submissions to their fences, and of as many steps of the small model.
    """

    interface: str
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    driver: str = ""
    seconds: dict[str, list[float]] = field(default_factory=dict)
    differs: str | None = None
    """The first operation with wrong bits, where the results are wrong."""
    failure: ZincError | None = None
    """What ended it early, but for a call that the system refused."""

    @property
    def ok(self) -> bool:
        """Whether all steps were done."""
        return set(self.steps) == set(STEPS) and all(step["ok"] for step in self.steps.values())

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        medians = {f"median_{name}": statistics.median(found) for name, found in self.seconds.items() if found}
        return {
            "ok": self.ok,
            "driver": self.driver,
            "steps": self.steps,
            "seconds": {**self.seconds, **medians},
            "differs": self.differs,
        }


Reached = Callable[[InterfaceSteps, str], None]
"""Is told what an interface did so far, and the step that begins."""


class _Timed(AmdBackend):
    """Keeps the graph that ran last, so that it can be run again."""

    last: LoweredGraph | None = None

    def submit(self, step: CheckedStep, sampling: Any = None) -> StepFence:
        self.last = step.lowered
        return super().submit(step, sampling)


def run_steps(name: str, render_node: str, linux: Linux, cache: CompileCache, reached: Reached) -> InterfaceSteps:
    """Go as far as the interface gets. Never raises a `ZincError` or `OSError`.

    Args:
        name: "cs", "kfd" or "umq".
        render_node: of the card.
        linux: the machine.
        cache: where compiled kernels are kept.
        reached: is told of each step before it begins, so that a machine that stops leaves a trace.
    """
    found = InterfaceSteps(name)
    with contextlib.suppress(_Failed):
        _run(found, render_node, linux, cache, reached)
    release_frames(found.failure)
    return found


def measured_constants(name: str, render_node: str, linux: Linux, cache: CompileCache) -> dict[str, Any]:
    """The cost model's constants by name, as `calibrate.measure` has them; {"error"} where measuring failed."""
    try:
        with AmdBackend(open_interface(name, render_node, linux), cache=cache) as backend:
            return dict(backend.card_constants())
    except (ZincError, OSError) as error:
        return {"error": str(error)}


class _Failed(Exception):
    """A step failed, and is noted."""


def _run(found: InterfaceSteps, render_node: str, linux: Linux, cache: CompileCache, reached: Reached) -> None:
    def step(name: str, work: Callable[[], Any]) -> Any:
        reached(found, name)
        started = time.perf_counter()
        try:
            result = work()
        except (ZincError, OSError) as error:
            _note_failure(found, name, error, time.perf_counter() - started)
            raise _Failed from error
        found.steps[name] = {"ok": True, "seconds": time.perf_counter() - started}
        return result

    interface: Interface = step("opened", lambda: open_interface(found.interface, render_node, linux))
    found.driver = interface.device.driver
    # The interface opened, and made its queue and the queue's memory.
    found.steps["queue"] = {"ok": True, "seconds": 0.0}
    backend: _Timed | None = None
    try:
        step("memory", lambda: _touch(interface))
        found.seconds["fence"] = []
        step("fence", lambda: _fences(interface, found.seconds["fence"]))
        backend = step("kernels", lambda: _open(interface, cache))
        step("results", lambda: _results(backend, found))
    finally:
        try:
            (backend or interface).close()
        except (ZincError, OSError) as error:
            found.steps["closed"] = {"ok": False, "error": str(error)}


def _touch(interface: Interface) -> None:
    """Memory of both heaps, written and read by the processor."""
    heaps: tuple[Heap, ...] = ("vram", "gtt")
    for heap in heaps:
        buffer = interface.allocate(PAGE, heap, "report")
        assert buffer.address is not None, "a visible buffer has an address"
        interface.linux.store64(buffer.address, 0x5A)
        interface.linux.store_fence()
        seen = interface.linux.load64(buffer.address)
        interface.release(buffer)
        if seen != 0x5A:
            raise InterfaceError(f"reading back what was written to {heap}", None)


def _fences(interface: Interface, seconds: list[float]) -> None:
    for _ in range(REPEATS):
        seconds.append(probe(interface, PROBE_SECONDS))


def _open(interface: Interface, cache: CompileCache) -> _Timed:
    """A backend with one kernel loaded. Raises what that raises, and has closed the interface then."""
    entry = DECODE["move"]
    backend = _Timed(interface, cache=cache)
    with closed_on_failure(backend.close):
        compiled = gpu_kernels({"move": entry.spec}, backend.gpu.gfx.kernel_target, cache=cache)
        backend.gpu.load_kernel(compiled["move"])
    return backend


def _results(backend: _Timed, found: InterfaceSteps) -> None:
    """The small model's step as a whole and timed, then its operations one by one. Raises `WrongResults`."""
    wrong: WrongResults | None = None
    try:
        check_results(backend)
        found.seconds["step"] = list(_again(backend))
    except WrongResults as error:
        wrong = error
    found.differs = first_difference(backend)
    backend.last = None  # its arrays keep the GPU's memory mapped
    if wrong is not None:
        found.differs = found.differs or "none alone: the operations agree one by one, together they do not"
        raise wrong
    if found.differs is not None:
        raise WrongResults(f"the logits are right, an operation is not: {found.differs}")


def _again(backend: _Timed) -> Iterator[float]:
    """Seconds of each of some steps of what ran last."""
    assert backend.last is not None, "the check ran a step"
    for _ in range(REPEATS):
        started = time.perf_counter()
        backend.submit_and_wait(backend.last)
        yield time.perf_counter() - started


def _note_failure(found: InterfaceSteps, name: str, error: ZincError | OSError, seconds: float) -> None:
    found.failure = error if isinstance(error, ZincError) else None
    word, code = _word(error), getattr(error, "errno", None)
    forbidden = code in (errno.EACCES, errno.EPERM)  # the advice then names the user's groups
    text = error.step if isinstance(error, InterfaceError) and forbidden else str(error)
    if name == "opened":  # one call does three steps: the failure's name tells how far it came
        name = _step_of(error, word)
        for earlier in STEPS[: STEPS.index(name)]:
            found.steps[earlier] = {"ok": True, "seconds": 0.0}
    found.steps[name] = {
        "ok": False,
        "seconds": seconds,
        "kind": type(error).__name__,
        "word": word or None,
        "errno": code,
        "error": text,
        "help": remedy(word, code) or KERNEL_LOG,
    }


def _word(error: BaseException | None) -> str:
    """The name of the step or call that failed, from the error or from its cause; "" where none is known."""
    while error is not None:
        if isinstance(error, StepFailed):
            return error.word
        if isinstance(error, CallFailed):
            return error.call
        error = error.__context__
    return ""


def _step_of(error: ZincError | OSError, word: str) -> str:
    lowered = word.lower()
    if any(part in lowered for part in _QUEUE) or "a user queue" in str(error):
        return "queue"
    return "memory" if isinstance(error, BufferFailed) or any(part in lowered for part in _MEMORY) else "opened"
