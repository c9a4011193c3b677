"""The CPU backend for aarch64 on any machine: graphs are lowered here, and qemu runs all of their code."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, NamedTuple
from unittest import mock
from weakref import WeakSet

import numpy as np

from tests.backends.cpu.arm_machine import Machine
from zinc_rt.backends import host_memory
from zinc_rt.backends.arg_structs import address_of
from zinc_rt.backends.base import BackendFeatures
from zinc_rt.backends.cpu.backend import CpuBackend, CpuLoweredGraph
from zinc_rt.backends.cpu.choice import Kernel, TargetTuning
from zinc_rt.backends.cpu.program import CpuProgram, Runner
from zinc_rt.backends.cpu.ways import WaysOfProducts
from zinc_rt.backends.host import HostBackend
from zinc_rt.kernels.cpu import pool
from zinc_rt.kernels.cpu import program as native
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.lang.image import Code, Image
from zinc_rt.lang.library import Library
from zinc_rt.lang.target import TARGETS
from zinc_rt.utils import aside

_SCHED_YIELD: Final = 124  # include/uapi/asm-generic/unistd.h
# long syscall(long number, a, b, c): mov x8, x0; mov x0, x1; mov x1, x2; mov x2, x3; svc #0; ret
_SYSTEM_CALL: Final = struct.pack("<6I", 0xAA0003E8, 0xAA0103E0, 0xAA0203E1, 0xAA0303E2, 0xD4000001, 0xD65F03C0)
_PLAIN: Final[dict[str, Any]] = {"PROFILE": False}


class _Inheriting(threading.Thread):
    """Runs where its maker does: NumPy's allocator belongs to the context, which a thread does not get."""

    def __init__(self, *, target: Callable[[], object], name: str) -> None:
        super().__init__(target=partial(copy_context().run, target), name=name)


class _Placed(NamedTuple):
    address: int


class ArmLibrary(Library):
    """Kernels of an aarch64 level, in the machine's memory."""

    def __init__(self, machine: Machine, level: str) -> None:
        super().__init__(TARGETS[level], CompileCache(default_cache_dir()))
        self._machine = machine

    def load(self, kernels: Iterable[Kernel]) -> None:
        """See `Library.load`; code goes where the machine runs it."""

        def placed(image: Image) -> Code:
            return Code(_Placed(self._machine.place(image.code)), image.entries)  # type: ignore[arg-type]

        with mock.patch.object(Image, "load", placed):
            super().load(kernels)


class ArmRunner(Runner):
    """Runs programs by the walk that threads run, on as many of the machine's processes."""

    def __init__(self, library: ArmLibrary, machine: Machine, threads: int) -> None:
        super().__init__(library, threads)
        self._machine = machine
        self._system_call = machine.place(_SYSTEM_CALL)

    def kernels(self, *, alone: bool = False, profile: bool = False) -> list[Kernel]:
        """See `Runner.kernels`."""
        return [(native.run_alone, _PLAIN), (native.help_program, _PLAIN), (pool.run_program, _PLAIN)]

    def run(self, program: CpuProgram, *, profile: bool = False) -> None:
        """One step."""
        words = address_of(program.words)
        if self.threads == 1:
            self._machine.call(self._library.address(native.run_alone, _PLAIN), words)
            return
        program.words["system_call"], program.words["yield_number"] = self._system_call, _SCHED_YIELD
        first, *others = self._machine.processes[: self.threads]
        first.start(self._library.address(pool.run_program, _PLAIN), [words])  # with no workers to wake
        for process in others:
            process.start(self._library.address(native.help_program, _PLAIN), [words])
        for process in (first, *others):
            process.result()

    def drain(self) -> None:
        """Nothing looks at a program after its step."""

    def close(self) -> None:
        """The machine ends its processes."""


class ArmBackend(CpuBackend):
    """`CpuBackend` for an aarch64 level on an emulated machine."""

    def __init__(self, machine: Machine, level: str, threads: int) -> None:
        HostBackend.__init__(self)
        self._machine = machine
        self.library, self.threads, self._notify = ArmLibrary(machine, level), threads, None
        self.features = BackendFeatures("native", level, threads, samples=True)
        self.choice = TargetTuning.of(TARGETS[level])
        self.runner = ArmRunner(self.library, machine, threads)
        self.ways, self._recorder, self._streams = WaysOfProducts(self.library), None, WeakSet()

    @contextmanager
    def inside(self) -> Iterator[None]:
        """All memory that is asked for meanwhile lies in the machine."""
        system = SimpleNamespace(
            mmap=lambda _, size, flags: np.zeros(size, np.uint8), MAP_PRIVATE=0, MAP_ANONYMOUS=0, PAGESIZE=4096
        )
        threads = SimpleNamespace(Thread=_Inheriting)
        with (
            self._machine.arrays(),
            mock.patch.object(host_memory, "mmap", system),
            mock.patch.object(aside, "threading", threads),
        ):
            yield

    def lower(self, plan: Any, weights: Any, constants: Any, *more: Any, **named: Any) -> CpuLoweredGraph:
        """See `CpuBackend.lower`; of weights and constants the machine gets copies."""
        with self.inside():
            copies = [{name: np.array(array) for name, array in given.items()} for given in (weights, constants)]
            return super().lower(plan, *copies, *more, **named)

    def _run(self, *step: Any) -> None:
        with self.inside():  # a program gets its last phase when a step first samples
            super()._run(*step)

    def sampling_for(self, *request: Any) -> Any:
        """See `CpuBackend.sampling_for`."""
        with self.inside():
            return super().sampling_for(*request)
