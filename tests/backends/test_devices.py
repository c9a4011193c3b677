"""Which device runs, and what `auto` says of those that it skipped. A fence is proof enough here; `test_select` has
kernels.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace

import pytest

import zinc_rt.backends.probe
from amdgpu_emu.machine import Machine
from amdgpu_emu.models import MI300X, R9700, RAPHAEL, RX7900XTX, STRIX_POINT
from amdgpu_emu.profiles import LINUX_6_12, LINUX_6_17, LINUX_7_3, LINUX_7_3_USERQ
from zinc_rt.amdgpu.cs.interface import CsInterface
from zinc_rt.amdgpu.queue import GpuQueue
from zinc_rt.backends.devices import BY_DRIVER, Device, DeviceChoice, DeviceReport, DeviceUnavailable
from zinc_rt.backends.gpu import selftest
from zinc_rt.backends.probe import AmdCard, find_gpus, probe_interface
from zinc_rt.backends.select import probe_devices, select_device
from zinc_rt.errors import BackendError
from zinc_rt.utils.linux import Linux

NODE = "/dev/dri/renderD128"


@pytest.fixture(autouse=True)
def a_fence_proves(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel is compiled or run."""
    monkeypatch.setattr(selftest, "prepare", lambda *_: None)
    monkeypatch.setattr(selftest, "check_results", lambda backend: None)


def reports(machine: Machine) -> tuple[DeviceReport, DeviceReport, DeviceReport]:
    """Of user queues, KFD and CS; then the machine is closed, which finds leaks."""
    with machine:
        found = {r.device: r for r in probe_devices(linux=machine.process())}
    assert list(found) == [Device.gpu_cs, Device.gpu_kfd, Device.gpu_umq, *BY_DRIVER, Device.cpu, Device.emu]
    assert found[Device.cpu].available
    return found[Device.gpu_umq], found[Device.gpu_kfd], found[Device.gpu_cs]


def auto(machine: Machine, device: Device = Device.cpu) -> str:
    """The line that `auto` says, and that it takes this device."""
    lines: list[str] = []
    with machine:
        assert select_device(Device.auto, lines.append, linux=machine.process()) is device
    if device is Device.gpu_cs:
        assert not lines
        return ""
    assert len(lines) == 1
    assert "\n" not in lines[0]
    assert lines[0].startswith(f"device {device.value}; skipped gpu")
    return lines[0]


# Proofs.


@pytest.mark.parametrize("profile", [LINUX_6_12, LINUX_6_17, LINUX_7_3])
def test_kfd_is_proven(profile) -> None:
    umq, kfd, cs = reports(Machine(profile))
    assert not umq.proven
    assert kfd.proven
    assert kfd.available
    assert kfd.reason == "computes right through kfd on /dev/dri/renderD128 (gfx1201)"
    assert (kfd.render_node, kfd.remedy) == (NODE, "")
    assert cs.reason == "computes right through cs on /dev/dri/renderD128 (gfx1201)"


def test_user_queues_are_proven_where_the_kernel_has_slots() -> None:
    umq, kfd, cs = reports(Machine(LINUX_7_3_USERQ))
    assert umq.proven
    assert kfd.proven
    assert cs.proven
    assert "computes right through umq" in umq.reason


def test_a_new_kernel_proves_nothing() -> None:
    umq, _, _ = reports(Machine(LINUX_7_3))
    assert not umq.proven
    assert "no slots for compute user queues" in umq.reason


def test_command_submission_needs_no_kfd() -> None:
    _, kfd, cs = reports(Machine(LINUX_6_17, has_kfd=False))
    assert not kfd.proven
    assert cs.proven
    assert "computes right through cs" in cs.reason


def test_when_no_interface_opens() -> None:
    machine = Machine(LINUX_6_17, has_kfd=False)
    machine.inject("AMDGPU_CTX", errno.ENOMEM, times=None)
    _, kfd, cs = reports(machine)
    assert not kfd.proven
    assert not cs.proven
    assert "/dev/kfd" in kfd.reason


def test_a_fence_that_does_not_retire_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zinc_rt.backends.probe, "PROBE_SECONDS", 0.05)
    with Machine(LINUX_6_17) as machine:
        machine.gpus[0].fence_delay = 0.3
        proof = probe_interface("cs", NODE, machine.process())
    assert proof.seconds is None
    assert "0.05 s" in proof.error


def test_proofs_take_the_time_from_submission_to_fence() -> None:
    with Machine(LINUX_7_3_USERQ) as machine:
        linux = machine.process()
        for interface in ("umq", "kfd", "cs"):
            proof = probe_interface(interface, NODE, linux)
            assert proof.error == ""
            assert proof.seconds is not None
            assert 0 < proof.seconds < 2


@pytest.mark.parametrize("call", ["AMDGPU_USERQ", "AMDGPU_GEM_CREATE", "DRM_SYNCOBJ_CREATE"])
def test_an_interface_that_is_refused(call: str) -> None:
    machine = Machine(LINUX_7_3_USERQ)
    machine.inject(call, errno.EIO, times=2)
    umq, kfd, _ = reports(machine)
    assert not umq.proven
    assert "errno 5" in umq.reason
    assert kfd.proven


# Which GPU.


def test_an_integrated_gpu_is_skipped() -> None:
    _, kfd, cs = reports(Machine(LINUX_6_17, [RAPHAEL, R9700]))
    for report in (kfd, cs):
        assert "/dev/dri/renderD129" in report.reason
        assert report.proven


def test_a_processors_gpu_comes_behind_cards() -> None:
    with Machine(LINUX_6_17, [STRIX_POINT, R9700]) as machine:
        names = [report.name for report in probe_devices(linux=machine.process())]
    assert names[:2] == ["gpu:cs@renderD129", "gpu:kfd@renderD129"]
    assert "gpu:cs@renderD128" in names


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (RAPHAEL, "renderD128 is gfx1036, part of the processor"),
        (MI300X, "renderD128 is gfx942: kernels run on gfx11, gfx11.5 and gfx12"),
        (replace(RX7900XTX, gfx=(10, 3, 0)), "renderD128 is gfx1030: kernels run on gfx11, gfx11.5 and gfx12"),
        (replace(R9700, integrated=True), "renderD128 is gfx1201, part of the processor"),
        (replace(RAPHAEL, gfx=(11, 0, 3)), "renderD128 is gfx1103, part of the processor: of those, gfx11.5 alone"),
    ],
)
def test_gpus_that_the_runtime_does_not_use(model, words: str) -> None:
    for report in reports(Machine(LINUX_7_3_USERQ, [model])):
        assert words in report.reason
        assert not report.proven


def test_a_card_of_another_family_is_refused_by_name_and_passed_over() -> None:
    with Machine(LINUX_6_17, [MI300X, R9700]) as machine:
        linux = machine.process()
        assert select_device(Device.auto, linux=linux) is Device.gpu_cs
        named = DeviceChoice(Device.gpu, "renderD128")
        with pytest.raises(DeviceUnavailable, match=r"gfx942: kernels run on gfx11, gfx11\.5 and gfx12"):
            select_device(named, linux=linux)
        with pytest.raises(BackendError, match=r"gfx942; the packets here are for gfx11, gfx11\.5 and gfx12"):
            GpuQueue(CsInterface(NODE, linux=linux))


def test_the_second_gpu_when_the_first_does_not_work() -> None:
    with Machine(LINUX_6_17, [R9700, R9700]) as machine:
        linux = machine.process()
        machine.inject("AMDGPU_CTX", errno.EIO, times=1)
        machine.inject("KFD_CREATE_QUEUE", errno.EINVAL, times=1)
        found = {r.name: r for r in probe_devices(linux=linux)}
    assert list(found) == [
        "gpu:cs@renderD128",
        "gpu:kfd@renderD128",
        "gpu:umq@renderD128",
        "gpu:cs@renderD129",
        "gpu:kfd@renderD129",
        "gpu:umq@renderD129",
        *BY_DRIVER,
        "cpu",
        "emu",
    ]
    assert [name for name, report in found.items() if report.proven] == ["gpu:cs@renderD129", "gpu:kfd@renderD129"]


def test_find_gpus() -> None:
    with Machine(LINUX_6_17, [RAPHAEL, R9700], displays={1: ["DP-2"]}) as machine:
        small, large = find_gpus(machine.process())
    assert (small.render_node, small.integrated, small.eligible, small.name) == (NODE, True, False, "gfx1036")
    assert (large.render_node, large.compute_units, large.vram) == ("/dev/dri/renderD129", 64, 32 << 30)
    assert (small.pci, small.displays, large.pci, large.displays) == ("0000:05:00.0", (), "0000:08:00.0", ("DP-2",))
    assert large.firmware == (3110, 3210, 3470, 150)
    assert large.eligible
    assert large.refusal() == ""


def test_a_gfx12_that_the_kernels_are_not_for() -> None:
    for report in reports(Machine(LINUX_6_17, [replace(R9700, gfx=(12, 5, 1))])):
        assert not report.available
        assert "renderD128 is gfx1251: kernels run on" in report.reason


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
    assert select_device(Device.auto, lines.append, linux=OtherSystem()) is Device.cpu
    assert lines == ["device cpu; skipped gpu: AMD GPUs are driven on Linux only"]
    assert find_gpus(OtherSystem()) == []


def test_no_gpu() -> None:
    assert auto(Machine(LINUX_6_17, [])).endswith("no AMD GPU is in sight")


def test_cards_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with Machine(LINUX_6_17) as machine:
        linux = machine.process()
        real = linux.read_text
        monkeypatch.setattr(linux, "read_text", lambda p: "0x10de\n" if p.endswith("vendor") else real(p))
        assert find_gpus(linux) == []


# auto and explicit devices.


def test_auto_takes_the_first_interface_that_works() -> None:
    assert auto(Machine(LINUX_6_17), Device.gpu_cs) == ""
    assert auto(Machine(LINUX_7_3_USERQ), Device.gpu_cs) == ""
    machine = Machine(LINUX_6_17)
    machine.inject("AMDGPU_CTX", errno.EIO, times=None)
    line = auto(machine, Device.gpu_kfd)
    assert line.startswith("device gpu:kfd; skipped gpu:cs: ")
    assert "errno 5" in line


def test_each_interface_is_skipped_with_its_own_reason() -> None:
    machine = Machine(LINUX_6_17)
    machine.inject("AMDGPU_CTX", errno.EIO, times=None)
    machine.inject("KFD_CREATE_QUEUE", errno.EINVAL, times=None)
    line = auto(machine)
    cs, kfd, umq = (line.index(f"gpu:{name}: ") for name in ("cs", "kfd", "umq"))
    assert cs < line.index("errno 5") < kfd < line.index("errno 22") < umq < line.index("no slots for compute")


def test_auto_in_a_container_without_devices() -> None:
    assert "No such file" in auto(Machine(LINUX_6_17, has_dri=False, has_kfd=False))


def test_an_explicit_device_is_refused_with_its_reason() -> None:
    with Machine(LINUX_6_17) as machine:
        linux = machine.process()
        for device in (Device.gpu_kfd, Device.gpu_cs):
            assert select_device(device, linux=linux) is device
        with pytest.raises(DeviceUnavailable, match=r"gpu:umq cannot run: .*no slots"):
            select_device(Device.gpu_umq, linux=linux)


@pytest.mark.parametrize(
    ("device", "how", "taken"),
    [
        (Device.gpu, {}, Device.gpu_cs),
        (Device.gpu, {"profile": LINUX_7_3_USERQ}, Device.gpu_cs),
        (Device.gpu_kernel, {"has_kfd": False}, Device.gpu_cs),
    ],
)
def test_devices_that_leave_the_interface_open(device: Device, how: dict, taken: Device) -> None:
    with Machine(**{"profile": LINUX_6_17, **how}) as machine:
        assert select_device(device, linux=machine.process()) is taken


def test_no_interface_of_a_gpu_works() -> None:
    told = r"^device gpu cannot run: .*No such file.*; see `zinc check`$"
    with Machine(LINUX_6_17, has_dri=False, has_kfd=False) as machine, pytest.raises(DeviceUnavailable, match=told):
        select_device(Device.gpu, linux=machine.process())


def test_the_cpu_looks_at_no_gpu() -> None:
    assert select_device(Device.cpu, linux=OtherSystem()) is Device.cpu


def test_eligible() -> None:
    assert AmdCard(NODE, 0x7551, ip_major=12).eligible
    assert AmdCard(NODE, 0x7551, ip_major=13).eligible
    assert AmdCard(NODE, 0x744C, ip_major=11).eligible
    assert not AmdCard(NODE, 0x73BF, ip_major=10).eligible
    assert not AmdCard(NODE, 0x7551, ip_major=12, integrated=True).eligible
    assert not AmdCard(NODE, 0x7551, ip_major=12, open_errno=errno.EACCES).eligible
