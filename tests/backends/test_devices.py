"""Which tier runs: GPUs of emulated machines are proven by a fence, and `auto` says what it skipped and why."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace

import pytest

import zinc_rt.backends.probe
from amdgpu_emu.machine import Machine
from amdgpu_emu.models import R9700, RAPHAEL, RX7900XTX
from amdgpu_emu.profiles import LINUX_6_12, LINUX_6_17, LINUX_7_3, LINUX_7_3_USERQ
from zinc_rt.backends.probe import Gpu, find_gpus, prove_cs, prove_kfd, prove_umq
from zinc_rt.backends.devices import Tier, TierReport, TierUnavailable, auto_tier, probe_tiers, resolve_tier
from zinc_rt.linux import Linux

NODE = "/dev/dri/renderD128"


def reports(machine: Machine) -> tuple[TierReport, TierReport]:
    """Of t2_umq and t1_pm4; then the machine is closed, which finds leaks."""
    with machine:
        found = {r.tier: r for r in probe_tiers(linux=machine.process())}
    assert list(found) == [Tier.t2_umq, Tier.t1_pm4, Tier.t_cpu, Tier.t_metal, Tier.t_intel, Tier.t_cuda, Tier.emu]
    assert found[Tier.t_cpu].available
    return found[Tier.t2_umq], found[Tier.t1_pm4]


def auto(machine: Machine, tier: Tier = Tier.t_cpu) -> str:
    """The line that `auto` says, and that it takes this tier."""
    lines: list[str] = []
    with machine:
        assert auto_tier(lines.append, linux=machine.process()) is tier
    if tier is Tier.t2_umq:
        assert not lines
        return ""
    assert len(lines) == 1
    assert "\n" not in lines[0]
    skipped = "t2_umq" if tier is Tier.t1_pm4 else "t2_umq, t1_pm4"
    assert lines[0].startswith(f"tier {tier.value}; skipped {skipped}: ")
    return lines[0]


# Proofs.


@pytest.mark.parametrize("profile", [LINUX_6_12, LINUX_6_17, LINUX_7_3])
def test_t1_is_proven_through_kfd(profile) -> None:
    t2, t1 = reports(Machine(profile))
    assert not t2.proven
    assert t1.proven
    assert t1.available
    assert t1.reason == "a fence retired through kfd on /dev/dri/renderD128 (gfx1201)"
    assert (t1.interface, t1.render_node, t1.remedy) == ("kfd", NODE, "")


def test_t2_is_proven_where_the_kernel_has_slots() -> None:
    t2, t1 = reports(Machine(LINUX_7_3_USERQ))
    assert t2.proven
    assert t1.proven
    assert "a fence retired through umq" in t2.reason


def test_a_new_kernel_proves_nothing() -> None:
    t2, _ = reports(Machine(LINUX_7_3))
    assert not t2.proven
    assert "no slots for compute user queues" in t2.reason


def test_command_submission_comes_after_kfd() -> None:
    _, t1 = reports(Machine(LINUX_6_17, has_kfd=False))
    assert t1.proven
    assert "a fence retired through cs" in t1.reason


def test_when_no_interface_opens() -> None:
    machine = Machine(LINUX_6_17, has_kfd=False)
    machine.inject("AMDGPU_CTX", errno.ENOMEM, times=None)
    _, t1 = reports(machine)
    assert not t1.proven
    assert "kfd: " in t1.reason
    assert "cs: " in t1.reason
    assert "/dev/kfd" in t1.reason


def test_a_fence_that_does_not_retire_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zinc_rt.backends.probe, "PROOF_SECONDS", 0.05)
    with Machine(LINUX_6_17) as machine:
        machine.gpus[0].fence_delay = 0.3
        proof = prove_cs(NODE, machine.process())
    assert proof.seconds is None
    assert "0.05 s" in proof.error


def test_proofs_take_the_time_from_submission_to_fence() -> None:
    with Machine(LINUX_7_3_USERQ) as machine:
        linux = machine.process()
        for interface in (prove_umq, prove_kfd, prove_cs):
            proof = interface(NODE, linux)
            assert proof.error == ""
            assert proof.seconds is not None
            assert 0 < proof.seconds < 2


@pytest.mark.parametrize("call", ["AMDGPU_USERQ", "AMDGPU_GEM_CREATE", "DRM_SYNCOBJ_CREATE"])
def test_a_interface_that_is_refused(call: str) -> None:
    machine = Machine(LINUX_7_3_USERQ)
    machine.inject(call, errno.EIO, times=2)
    t2, t1 = reports(machine)
    assert not t2.proven
    assert "errno 5" in t2.reason
    assert t1.proven


# Which GPU.


def test_an_integrated_gpu_is_skipped() -> None:
    _, t1 = reports(Machine(LINUX_6_17, [RAPHAEL, R9700]))
    assert "/dev/dri/renderD129" in t1.reason
    assert t1.proven


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (RAPHAEL, "renderD128 is gfx1036, part of the processor"),
        (RX7900XTX, "renderD128 is gfx1100: older than gfx12"),
        (replace(R9700, integrated=True), "renderD128 is gfx1201, part of the processor"),
    ],
)
def test_gpus_that_no_tier_takes(model, words: str) -> None:
    for report in reports(Machine(LINUX_7_3_USERQ, [model])):
        assert words in report.reason
        assert not report.proven


def test_the_second_gpu_when_the_first_does_not_work() -> None:
    machine = Machine(LINUX_6_17, [R9700, R9700])
    with machine:
        linux = machine.process()
        machine.inject("AMDGPU_CTX", errno.EIO, times=1)
        machine.inject("KFD_CREATE_QUEUE", errno.EINVAL, times=1)
        found = {r.tier: r for r in probe_tiers(linux=linux)}
    assert found[Tier.t1_pm4].proven
    assert "renderD129" in found[Tier.t1_pm4].reason


def test_find_gpus() -> None:
    with Machine(LINUX_6_17, [RAPHAEL, R9700]) as machine:
        small, large = find_gpus(machine.process())
    assert (small.render_node, small.integrated, small.eligible, small.name) == (NODE, True, False, "gfx1036")
    assert (large.render_node, large.compute_units, large.vram) == ("/dev/dri/renderD129", 64, 32 << 30)
    assert large.eligible
    assert large.refusal() == ""


def test_a_gfx12_that_the_kernels_are_not_for() -> None:
    _, t1 = reports(Machine(LINUX_6_17, [replace(R9700, gfx=(12, 5, 1))]))
    assert not t1.available
    assert "no kernels for it" in t1.reason


@pytest.fixture
def forbidden() -> Iterator[Machine]:
    with Machine(LINUX_6_17, groups=(1000,)) as machine:
        yield machine


def test_a_gpu_that_may_not_be_opened(forbidden: Machine) -> None:
    (gpu,) = find_gpus(forbidden.process())
    assert gpu.open_errno == errno.EACCES
    assert gpu.device_id == 0x7551
    assert gpu.refusal() == f"{NODE} cannot be used: Permission denied"
    assert gpu.name == "device 0x7551"


def test_a_gpu_that_does_not_answer() -> None:
    with Machine(LINUX_6_17) as machine:
        machine.inject("AMDGPU_INFO", errno.ENODEV, times=None)
        (gpu,) = find_gpus(machine.process())
    assert gpu.open_errno == errno.ENODEV


# Other machines.


class OtherSystem(Linux):
    @property
    def is_linux(self) -> bool:
        return False

    def list_dir(self, path: str) -> list[str]:
        raise AssertionError("nothing is looked at here")


def test_another_system() -> None:
    lines: list[str] = []
    assert auto_tier(lines.append, linux=OtherSystem()) is Tier.t_cpu
    assert lines == ["tier t_cpu; skipped t2_umq, t1_pm4: AMD GPUs are driven on Linux only"]
    assert find_gpus(OtherSystem()) == []


def test_no_gpu() -> None:
    assert auto(Machine(LINUX_6_17, [])).endswith("no AMD GPU is in sight")


def test_cards_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with Machine(LINUX_6_17) as machine:
        linux = machine.process()
        real = linux.read_text
        monkeypatch.setattr(linux, "read_text", lambda p: "0x10de\n" if p.endswith("vendor") else real(p))
        assert find_gpus(linux) == []


# auto and explicit tiers.


def test_auto_takes_the_first_interface_that_works() -> None:
    assert "no slots for compute user queues" in auto(Machine(LINUX_6_17), Tier.t1_pm4)
    assert auto(Machine(LINUX_7_3_USERQ), Tier.t2_umq) == ""
    auto(Machine(LINUX_6_17, has_kfd=False), Tier.t1_pm4)


def test_auto_in_a_container_without_devices() -> None:
    assert "No such file" in auto(Machine(LINUX_6_17, has_dri=False, has_kfd=False))


def test_an_explicit_tier_is_refused_with_its_reason() -> None:
    with Machine(LINUX_6_17) as machine:
        linux = machine.process()
        assert resolve_tier(Tier.t1_pm4, linux=linux) is Tier.t1_pm4
        with pytest.raises(TierUnavailable, match=r"t2_umq cannot run: .*no slots"):
            resolve_tier(Tier.t2_umq, linux=linux)


def test_the_cpu_tier_looks_at_no_gpu() -> None:
    assert resolve_tier(Tier.t_cpu, linux=OtherSystem()) is Tier.t_cpu


def test_eligible() -> None:
    assert Gpu(NODE, 0x7551, ip_major=12).eligible
    assert Gpu(NODE, 0x7551, ip_major=13).eligible
    assert not Gpu(NODE, 0x7551, ip_major=11).eligible
    assert not Gpu(NODE, 0x7551, ip_major=12, integrated=True).eligible
    assert not Gpu(NODE, 0x7551, ip_major=12, open_errno=errno.EACCES).eligible
