"""An emulated machine: a kernel of some version, its GPUs, and the processes that use them.

Used as:

    machine = Machine(LINUX_6_17, [R9700])
    linux = machine.process()                # give it to any driver code in place of `zinc_rt.utils.linux.host()`
    ...
    machine.close()                          # raises `EmulatorFinding` if something leaked or a rule was broken
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from uuid import uuid4

from amdgpu_emu.clock import Clock
from amdgpu_emu.errors import EmulatorFinding, Violation
from amdgpu_emu.faults import Faults, InjectedFault
from amdgpu_emu.gpu import Gpu
from amdgpu_emu.models import R9700, GpuModel
from amdgpu_emu.process import Process
from amdgpu_emu.profiles import LINUX_6_17, KernelProfile
from amdgpu_emu.shader import RecordingShader, Shader


@dataclass(frozen=True)
class DeviceFile:
    """Owner, group and mode of the device files."""

    uid: int = 0
    gid: int = 992
    mode: int = 0o660


@dataclass
class Machine:
    """An emulated machine: a kernel and its GPUs. A context manager, which closes it.

    Args:
        profile: the kernel version.
        models: the GPUs, one model each.
        shader: the shader core that runs dispatched kernels.
        time_scale: factor of the kernel's timeouts, so that a test need not wait ten seconds for a hang.
        groups: group ids of the processes.
        uid: user id of the processes.
        device_file: owner, group and mode of the device files.
        has_kfd, has_dri: whether the device files exist (some containers lack them).
        strict: whether `close` raises if there are findings.
        displays: connectors with a screen, as DP-1, by the number of the GPU.
        hangs: dispatches of a kind of queue, "cs", "kfd" or "umq", after which the next one never ends. Both of kfd and
            umq at 0 are what was seen of firmware (MES) on gfx1201 (ROCm/legacy-rocm-build, issues 6630, 6413, 6397).
        machine_id: of the installed system; by default no two machines have the same.

    Raises (in `close`): `EmulatorFinding`.
    """

    profile: KernelProfile = LINUX_6_17
    models: Sequence[GpuModel] = (R9700,)
    shader: Shader = field(default_factory=RecordingShader)
    time_scale: float = 1.0
    groups: Sequence[int] = (1000, 992)
    uid: int = 1000
    device_file: DeviceFile = field(default_factory=DeviceFile)
    has_kfd: bool = True
    has_dri: bool = True
    strict: bool = True
    displays: Mapping[int, Sequence[str]] = field(default_factory=dict)
    hangs: dict[str, int] = field(default_factory=dict)
    machine_id: str = field(default_factory=lambda: uuid4().hex)

    def __post_init__(self) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.clock = Clock(lambda: any(gpu.computes() for gpu in self.gpus))
        self.gpus = [Gpu(self, i, model) for i, model in enumerate(self.models)]
        self.faults = Faults()
        self.findings: list[Violation] = []
        self.trace: list[str] | None = None  # a line per call, while it is a list
        self.report_redundant: list[str] | None = None  # a line per barrier that did nothing, while it is a list
        self.dmesg: list[str] = []  # the kernel's log: hangs, resets, page faults, refusals that real drivers log
        self.boot_id = str(uuid4())
        self._processes: list[Process] = []
        self._closed = False

    def process(self) -> Process:
        """Start a process with descriptors, GPU address spaces and queues of its own."""
        process = Process(self, 1000 + len(self._processes))
        self._processes.append(process)
        return process

    @property
    def processes(self) -> Iterable[Process]:
        """All processes that were started."""
        return tuple(self._processes)

    def inject(self, call: str, errno: int, *, skip: int = 0, times: int | None = 1, match: str = "") -> InjectedFault:
        """Let calls fail with an errno; the arguments are those of `InjectedFault`."""
        return self.faults.add(InjectedFault(call, errno, skip, times, match))

    def report(self, kind: str, text: str) -> None:
        """Add a finding."""
        self.findings.append(Violation(kind, text))

    def dispatch_hangs(self, kind: str) -> bool:
        """Count a dispatch on a kind of queue; whether it is one that never ends."""
        left = self.hangs.get(kind)
        if left:
            self.hangs[kind] = left - 1
        return left == 0

    def settle(self, seconds: float = 5.0) -> None:
        """Wait until every GPU is idle, or its work waits for something."""
        with self.lock:
            end = self.clock.now() + seconds
            while any(gpu.busy() for gpu in self.gpus) and (left := end - self.clock.now()) > 0:
                self.clock.wait(self.changed, left)

    def close(self) -> None:
        """End the processes and the GPUs' threads. Raises `EmulatorFinding` with everything that was found."""
        if self._closed:
            return
        self._closed = True
        for process in self._processes:
            process.exit()
        for gpu in self.gpus:
            gpu.stop()
        if self.findings and self.strict:
            lines = "; ".join(str(finding) for finding in self.findings)
            raise EmulatorFinding(f"{len(self.findings)} findings: {lines}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.strict = False  # the first error is the one to see
        self.close()
