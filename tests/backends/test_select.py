"""What `auto` takes: the first device that opens, and on a GPU computes what the reference does."""

from __future__ import annotations

import numpy as np
import pytest

from amdgpu_emu.core.core import ShaderCore
from amdgpu_emu.drm.jobs import JobVm
from amdgpu_emu.machine import Machine
from amdgpu_emu.profiles import LINUX_6_17, LINUX_7_3_USERQ
from tests.helpers import soon
from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.backends.cpu.backend import CpuBackend
from zinc_rt.backends.devices import ON_GPU, RESIDENT_USES, Device, DeviceUnavailable
from zinc_rt.backends.gpu.selftest import WrongResults
from zinc_rt.backends.reference.backend import ReferenceBackend
from zinc_rt.backends.select import BackendOptions, open_backend
from zinc_rt.errors import DeviceLost, UsageError
from zinc_rt.lang.cache import CompileCache, default_cache_dir


def opened(
    machine: Machine, device: Device = Device.auto, options: BackendOptions | None = None
) -> tuple[Device, str, list[str]]:
    """The device, the backend's description, and what was said."""
    lines: list[str] = []
    with machine:
        taken, backend = open_backend(
            device,
            options or BackendOptions(),
            CompileCache(default_cache_dir()),
            notify=lines.append,
            linux=machine.process(),
        )
        on_cpu = ReferenceBackend if options is not None and options.kernels == "reference" else CpuBackend
        assert type(backend) is (AmdBackend if taken in ON_GPU else on_cpu)
        assert backend.features.samples is (on_cpu is CpuBackend or taken in ON_GPU)
        with backend:
            said = [
                line for line in lines if not line.startswith(("compiling", "compiled", "waiting for another process"))
            ]
            return taken, backend.description, said


def test_auto_takes_submissions_of_the_driver() -> None:
    taken, text, said = opened(Machine(LINUX_7_3_USERQ, shader=ShaderCore()))
    assert (taken, said) == (Device.gpu_cs, [])
    assert text == "GPU kernels for gfx1201 on /dev/dri/renderD128 through cs"


@pytest.mark.parametrize("interface", soon(("umq", "kfd"), ("umq", "kfd", "cs")))  # `auto` takes the other
def test_one_interface_is_insisted_on(interface: str) -> None:
    device = Device(f"gpu:{interface}")
    taken, text, said = opened(Machine(LINUX_7_3_USERQ, shader=ShaderCore()), device)
    assert (taken, said) == (device, [])
    assert text.endswith(f"through {interface}")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that hangs is given up soon."""
    monkeypatch.setitem(AmdBackend.__init__.__kwdefaults__, "timeout", 1.0)


def hanging(**hangs: int) -> Machine:
    return Machine(LINUX_7_3_USERQ, shader=ShaderCore(), hangs=hangs, time_scale=0.2)


def submissions(machine: Machine) -> list[str]:
    """Calls that make work possible, since the trace began."""
    calls = ("AMDGPU_CS ", "AMDGPU_CTX ", "AMDGPU_USERQ ", "KFD_CREATE_QUEUE ")
    assert machine.trace is not None
    return [line for line in machine.trace if line.startswith(calls)]


def auto(machine: Machine, device: Device = Device.auto) -> tuple[Device, str]:
    """What a new process of the machine takes, and the line that it says, if any."""
    lines: list[str] = []
    taken, backend = open_backend(
        device, BackendOptions(), CompileCache(default_cache_dir()), notify=lines.append, linux=machine.process()
    )
    backend.close()
    said = [line for line in lines if not line.startswith(("compiling", "compiled", "waiting for another process"))]
    assert len(said) <= 1
    return taken, "".join(said)


def test_where_firmware_schedules_the_queues_and_they_hang_auto_runs() -> None:
    with hanging(kfd=0, umq=0) as machine:
        assert auto(machine) == (Device.gpu_cs, "")
        assert machine.dmesg == []


def test_a_hang_goes_on_to_the_next_interface_and_is_not_repeated() -> None:
    with hanging(cs=0) as machine:
        taken, line = auto(machine)
        assert taken is Device.gpu_kfd
        assert line.startswith("device gpu:kfd; skipped gpu:cs: ")
        assert "it hung" in line
        machine.trace = []
        taken, line = auto(machine)
        assert taken is Device.gpu_kfd
        assert "gpu:cs: hung on /dev/dri/renderD128 on " in line
        assert "`zinc check --gpu` tries it again, --device gpu:cs insists" in line
        assert "AMDGPU_CS -> 0" not in submissions(machine)
        with pytest.raises(DeviceLost, match="it hung"):
            auto(machine, Device.gpu_cs)


def test_hangs_everywhere_end_on_the_cpu_and_the_second_start_submits_nothing(impatient: None) -> None:
    with hanging(cs=0, kfd=0, umq=0) as machine:
        machine.trace = []
        taken, line = auto(machine)
        assert taken is Device.cpu
        assert line.startswith("device cpu; skipped gpu:cs: ")
        assert len(submissions(machine)) >= 4
        machine.trace = []
        taken, line = auto(machine)
        assert taken is Device.cpu
        assert line.count("is not tried again") == 3
        assert submissions(machine) == []
        with pytest.raises(DeviceUnavailable, match=r"device gpu cannot run: gpu:cs: hung .* gpu:umq: hung "):
            auto(machine, Device.gpu)
        assert submissions(machine) == []


class Wrong(ShaderCore):
    """A GPU that gets a bit of every dispatch's memory wrong, now and then."""

    def run(self, dispatch, memory) -> None:
        super().run(dispatch, memory)
        for counters in self.counters[-1:]:
            alone = not any(name.startswith("global_atomic") for name in counters.names)
            if counters.names.get("v_dot4_i32_iu8") and alone and dispatch.rsrc2 >> 1 & 0x1F >= 10:
                # The result of a product that nothing is joined to: behind its quants, in user data as its arguments.
                va = dispatch.user_data[8] | dispatch.user_data[9] << 32
                memory.write(va, memory.read(va, 4) ^ np.uint8(1))


class WrongForTheDriver(Wrong):
    """The same, on kernel rings alone."""

    def run(self, dispatch, memory) -> None:
        kind = super() if isinstance(memory._vm, JobVm) else super(Wrong, self)
        kind.run(dispatch, memory)


def test_a_gpu_that_computes_wrong_is_not_trusted() -> None:
    machine = Machine(LINUX_6_17, shader=Wrong())
    with machine:
        taken, line = auto(machine)
        assert taken is Device.cpu
        assert line.startswith("device cpu; skipped gpu:cs, gpu:kfd: ")
        assert "results of a test are wrong" in line
        assert "--device cpu" in line
        machine.trace = []
        taken, line = auto(machine)
        assert taken is Device.cpu
        assert line.count("computed wrong on /dev/dri/renderD128") == 2
        assert not any(line.startswith(("AMDGPU_CS ", "KFD_CREATE_QUEUE ")) for line in machine.trace)
        with pytest.raises(WrongResults, match="cannot be trusted"):
            auto(machine, Device.gpu_kfd)


@pytest.mark.slow  # the tests above have each half of it
def test_wrong_bits_on_one_interface_go_on_to_the_next() -> None:
    with Machine(LINUX_6_17, shader=WrongForTheDriver()) as machine:
        for _ in range(2):
            taken, line = auto(machine, Device.gpu)
            assert taken is Device.gpu_kfd
            assert line.startswith("device gpu:kfd; skipped gpu:cs: ")
            assert "results of a test are wrong, first " in line


def test_options_of_the_cpu_mean_the_cpu() -> None:
    for options in (BackendOptions(threads=1), BackendOptions(kernels="reference")):
        taken, _, said = opened(Machine(LINUX_7_3_USERQ, shader=ShaderCore()), options=options)
        assert (taken, said) == (Device.cpu, [])
    with pytest.raises(UsageError, match=r"^--isa applies to the CPU only; it cannot be used with --device gpu:cs$"):
        opened(Machine(LINUX_7_3_USERQ), Device.gpu_cs, BackendOptions(isa="avx2"))


def test_an_explicit_device_is_refused_with_its_reason() -> None:
    with pytest.raises(DeviceUnavailable, match=r"gpu:umq cannot run: .*no slots"):
        opened(Machine(LINUX_6_17, shader=ShaderCore()), Device.gpu_umq)


def test_resident_programs_are_asked_for_by_name() -> None:
    with pytest.raises(UsageError, match="resident is 'sometimes', it must be auto, always or never"):
        BackendOptions(resident="sometimes")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="--resident always is for GPUs; it cannot be used with --device cpu"):
        open_backend(Device.cpu, BackendOptions(resident="always"), CompileCache(None))
    with pytest.raises(UsageError, match="it cannot be used with --device cpu or options of the CPU"):
        open_backend(Device.auto, BackendOptions(threads=1, resident="always"), CompileCache(None))
    for use in RESIDENT_USES:
        _, backend = open_backend(Device.emu, BackendOptions(resident=use), CompileCache(None))
        with backend:
            assert isinstance(backend, AmdBackend)
            assert backend.resident.use == use
            assert backend.resident.possible == (use == "always")
