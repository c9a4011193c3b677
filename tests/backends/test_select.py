"""What `auto` takes: the first tier that opens, and on a GPU computes what the reference does."""

from __future__ import annotations

import numpy as np
import pytest

from amdgpu_emu.core.core import ShaderCore
from amdgpu_emu.machine import Machine
from amdgpu_emu.profiles import LINUX_6_17, LINUX_7_3_USERQ
from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.backends.amdgpu.selftest import WrongResults
from zinc_rt.backends.cpu.backend import CpuBackend
from zinc_rt.backends.select import BackendOptions, open_backend
from zinc_rt.backends.devices import Tier, TierUnavailable
from zinc_rt.lang.cache import CompileCache, default_cache_dir


def opened(
    machine: Machine, tier: Tier = Tier.auto, options: BackendOptions | None = None
) -> tuple[Tier, str, list[str]]:
    """The tier, the backend's description, and what was said."""
    lines: list[str] = []
    with machine:
        taken, backend = open_backend(
            tier, options or BackendOptions(), CompileCache(default_cache_dir()), notify=lines.append,
            linux=machine.process(),
        )  # fmt: skip
        assert isinstance(backend, AmdBackend if taken in (Tier.t1_pm4, Tier.t2_umq) else CpuBackend)
        with backend:
            said = [line for line in lines if not line.startswith("compiling")]
            return taken, backend.description, said


def test_auto_takes_the_best_interface() -> None:
    taken, text, said = opened(Machine(LINUX_7_3_USERQ, shader=ShaderCore()))
    assert (taken, said) == (Tier.t2_umq, [])
    assert text == "GPU kernels for gfx1201 on /dev/dri/renderD128 through umq"


@pytest.mark.parametrize(("how", "interface"), [({}, "kfd"), ({"has_kfd": False}, "cs")])
def test_auto_says_what_it_skipped(how: dict, interface: str) -> None:
    taken, text, said = opened(Machine(LINUX_6_17, shader=ShaderCore(), **how))
    assert taken is Tier.t1_pm4
    assert text.endswith(f"through {interface}")
    assert len(said) == 1
    assert said[0].startswith("tier t1_pm4; skipped t2_umq: ")


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
    assert taken is Tier.t_cpu
    assert len(said) == 1
    assert "results of a test are wrong" in said[0]
    assert "--tier t_cpu" in said[0]
    with pytest.raises(WrongResults, match="cannot be trusted"):
        opened(Machine(LINUX_6_17, shader=Wrong()), Tier.t1_pm4)


def test_options_of_the_cpu_mean_the_cpu() -> None:
    for options in (BackendOptions(threads=1), BackendOptions(kernels="reference")):
        taken, _, said = opened(Machine(LINUX_7_3_USERQ, shader=ShaderCore()), options=options)
        assert (taken, said) == (Tier.t_cpu, [])


def test_an_explicit_tier_is_refused_with_its_reason() -> None:
    with pytest.raises(TierUnavailable, match=r"t2_umq cannot run: .*no slots"):
        opened(Machine(LINUX_6_17, shader=ShaderCore()), Tier.t2_umq)
