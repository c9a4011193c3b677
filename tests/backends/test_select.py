"""What `auto` takes: the first device that opens, and on a GPU computes what the reference does."""

from __future__ import annotations

import numpy as np
import pytest

from amdgpu_emu.core.core import ShaderCore
from amdgpu_emu.machine import Machine
from amdgpu_emu.profiles import LINUX_6_17, LINUX_7_3_USERQ
from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.backends.amdgpu.selftest import WrongResults
from zinc_rt.backends.cpu.backend import CpuBackend
from zinc_rt.backends.devices import ON_GPU, Device, DeviceUnavailable
from zinc_rt.backends.reference.backend import ReferenceBackend
from zinc_rt.backends.select import BackendOptions, open_backend
from zinc_rt.errors import UsageError
from zinc_rt.lang.cache import CompileCache, default_cache_dir


def opened(
    machine: Machine, device: Device = Device.auto, options: BackendOptions | None = None
) -> tuple[Device, str, list[str]]:
    """The device, the backend's description, and what was said."""
    lines: list[str] = []
    with machine:
        taken, backend = open_backend(
            device, options or BackendOptions(), CompileCache(default_cache_dir()), notify=lines.append,
            linux=machine.process(),
        )  # fmt: skip
        on_cpu = ReferenceBackend if options is not None and options.kernels == "reference" else CpuBackend
        assert type(backend) is (AmdBackend if taken in ON_GPU else on_cpu)
        assert backend.features.samples is (on_cpu is CpuBackend or taken in ON_GPU)
        with backend:
            said = [line for line in lines if not line.startswith("compiling")]
            return taken, backend.description, said


def test_auto_takes_the_best_interface() -> None:
    taken, text, said = opened(Machine(LINUX_7_3_USERQ, shader=ShaderCore()))
    assert (taken, said) == (Device.gpu_umq, [])
    assert text == "GPU kernels for gfx1201 on /dev/dri/renderD128 through umq"


@pytest.mark.parametrize("asked", [Device.auto, Device.gpu])
@pytest.mark.parametrize(
    ("how", "interface", "skipped"), [({}, "kfd", "gpu:umq"), ({"has_kfd": False}, "cs", "gpu:umq, gpu:kfd")]
)
def test_auto_says_what_it_skipped(asked: Device, how: dict, interface: str, skipped: str) -> None:
    taken, text, said = opened(Machine(LINUX_6_17, shader=ShaderCore(), **how), asked)
    assert taken.value == f"gpu:{interface}"
    assert text.endswith(f"through {interface}")
    assert len(said) == 1
    assert said[0].startswith(f"device gpu:{interface}; skipped {skipped}: ")


@pytest.mark.parametrize("interface", ["umq", "kfd", "cs"])
def test_one_interface_is_insisted_on(interface: str) -> None:
    device = Device(f"gpu:{interface}")
    taken, text, said = opened(Machine(LINUX_7_3_USERQ, shader=ShaderCore()), device)
    assert (taken, said) == (device, [])
    assert text.endswith(f"through {interface}")


class Wrong(ShaderCore):
    """A GPU that gets a bit of every dispatch's memory wrong, now and then."""

    def run(self, dispatch, memory) -> None:
        super().run(dispatch, memory)
        for counters in self.counters[-1:]:
            if counters.names.get("v_dot4_i32_iu8"):
                # The result of a product: behind its quants, in user data as the kernel's arguments.
                va = dispatch.user_data[8] | dispatch.user_data[9] << 32
                memory.write(va, memory.read(va, 4) ^ np.uint8(1))


def test_a_gpu_that_computes_wrong_is_not_trusted() -> None:
    taken, _, said = opened(Machine(LINUX_6_17, shader=Wrong()))
    assert taken is Device.cpu
    assert len(said) == 1
    assert said[0].startswith("device cpu; skipped gpu:umq, gpu:kfd, gpu:cs: ")
    assert "results of a test are wrong" in said[0]
    assert "--device cpu" in said[0]
    with pytest.raises(WrongResults, match="cannot be trusted"):
        opened(Machine(LINUX_6_17, shader=Wrong()), Device.gpu_kfd)


def test_options_of_the_cpu_mean_the_cpu() -> None:
    for options in (BackendOptions(threads=1), BackendOptions(kernels="reference")):
        taken, _, said = opened(Machine(LINUX_7_3_USERQ, shader=ShaderCore()), options=options)
        assert (taken, said) == (Device.cpu, [])
    with pytest.raises(UsageError, match=r"^--isa applies to the CPU only; it cannot be used with --device gpu:cs$"):
        opened(Machine(LINUX_7_3_USERQ), Device.gpu_cs, BackendOptions(isa="avx2"))


def test_an_explicit_device_is_refused_with_its_reason() -> None:
    with pytest.raises(DeviceUnavailable, match=r"gpu:umq cannot run: .*no slots"):
        opened(Machine(LINUX_6_17, shader=ShaderCore()), Device.gpu_umq)
