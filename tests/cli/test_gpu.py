"""`zinc check` on AMD GPUs: each situation that users meet has its line, and the line its remedy."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from amdgpu_emu.machine import DeviceFile, Machine
from amdgpu_emu.models import R9700, RAPHAEL, RX7900XTX, SMALL_BAR, STRIX_HALO, STRIX_POINT, Firmware
from amdgpu_emu.process import Process
from amdgpu_emu.profiles import LINUX_6_12, LINUX_6_17, LINUX_7_3, LINUX_7_3_USERQ
from zinc_rt.cli.gpu import gpu_findings
from zinc_rt.cli.machine import MachineFinding
from zinc_rt.cli.native import NativeReport
from zinc_rt.utils.linux import Linux

EINVAL, EIO, ENOMEM = errno.EINVAL, errno.EIO, errno.ENOMEM
CONTAINER = "--device /dev/kfd --device /dev/dri"


def look(machine: Machine, prepare: Callable[[Process], object] = lambda linux: None) -> dict[str, MachineFinding]:
    """The findings by name; then the machine is closed, which finds leaks."""
    with machine:
        linux = machine.process()
        prepare(linux)
        found = gpu_findings(linux)
    assert all("\n" not in f.value + f.remedy for f in found)
    assert all(f.remedy for f in found if not f.ok and f.name.rpartition(" ")[2] not in {"umq", "kfd", "cs"})
    names = [f.name for f in found]
    assert len(set(names)) == len(names)
    return {f.name.removeprefix("renderD128 "): f for f in found}


def wrong(found: dict[str, MachineFinding]) -> list[str]:
    return [name for name, f in found.items() if not f.ok]


def test_everything_works() -> None:
    found = look(Machine(LINUX_7_3_USERQ))
    assert wrong(found) == []
    assert list(found) == [
        "AMD GPUs", "/dev/kfd", "renderD128", "file", "BAR", "firmware", "user queue", "umq", "kfd memory", "kfd queue",
        "kfd", "cs smoke", "cs",
    ]  # fmt: skip
    assert found["renderD128"].value == "gfx1201, 64 compute units, 32.00 GiB of VRAM"
    for interface in ("umq", "kfd", "cs"):
        assert re.fullmatch(r"a fence retired after \d+\.\d\d ms", found[interface].value)
    assert found["user queue"].value == "Linux 7.3.4-amd64, user_queue=1, 4 slots; a queue was made and freed"
    assert "0x1d47000" in found["kfd queue"].value
    assert found["firmware"].value == "ME 3110, PFP 3210, MEC 3470, MES 150"


def test_an_r9700_with_the_default_parameter() -> None:
    found = look(Machine(LINUX_6_17))
    assert wrong(found) == ["user queue"]
    line = found["user queue"]
    assert line.value.startswith("Linux 6.17.0-24-generic, user_queue=-1: the kernel reports no slots")
    assert "amdgpu.user_queue=1" in line.remedy


@pytest.mark.parametrize(
    ("profile", "seen", "remedy"),
    [
        (
            LINUX_6_12,
            "6.12.107-amd64, no parameter user_queue: the kernel is older than Linux 6.16",
            "install Linux 6.16",
        ),
        (replace(LINUX_7_3, user_queue=0), "user_queue=0: amdgpu.user_queue forbids", "boot with amdgpu.user_queue=1"),
        (replace(LINUX_7_3, user_queue=None), "no parameter user_queue: amdgpu has no readable", "use a kernel"),
    ],
    ids=["old kernel", "forbidden", "no parameter"],
)
def test_why_there_are_no_user_queues(profile, seen: str, remedy: str) -> None:
    found = look(Machine(profile))
    assert wrong(found) == ["user queue"]
    assert seen in found["user queue"].value
    assert remedy in found["user queue"].remedy


def test_firmware_too_old_for_user_queues() -> None:
    model = replace(R9700, firmware=Firmware(me=2700, mes=100))
    found = look(Machine(replace(LINUX_6_17, user_queue=1), [model]))
    assert wrong(found) == ["firmware", "user queue"]
    assert "ME 2700" in found["firmware"].value
    assert "user queues need ME 2780, PFP 2840, MEC 3050, MES 123" in found["firmware"].value
    assert "linux-firmware" in found["firmware"].remedy


def test_a_user_queue_that_the_kernel_refuses() -> None:
    machine = Machine(LINUX_7_3_USERQ)
    machine.inject("AMDGPU_USERQ", EINVAL)
    found = look(machine)
    assert wrong(found) == ["user queue"]
    assert "4 slots: the kernel refuses the queue (Invalid argument, errno 22)" in found["user queue"].value


# Files and containers.


def test_a_group_that_we_are_not_in() -> None:
    found = look(Machine(LINUX_6_17, groups=(1000,)))
    assert wrong(found) == ["/dev/kfd", "renderD128", "file"]
    for name, path in (("/dev/kfd", "/dev/kfd"), ("file", "/dev/dri/renderD128")):
        line = found[name]
        assert line.value == f"{path} is forbidden: mode 0660, owner 0, group 992; this process is in 1000"
        assert "usermod -aG 992 $USER" in line.remedy
        assert "--group-add 992" in line.remedy


def test_groups_have_names_where_the_system_tells_them() -> None:
    def named(linux: Process) -> None:
        real = linux.read_text
        linux.read_text = lambda p: "render:x:992:me\nme:x:1000:\n" if p == "/etc/group" else real(p)  # type: ignore[method-assign]

    found = look(Machine(LINUX_6_17, groups=(1000,)), named)
    assert "group render (992); this process is in me (1000)" in found["/dev/kfd"].value
    assert "sudo usermod -aG render $USER" in found["/dev/kfd"].remedy


def test_a_mode_that_shuts_the_group_out() -> None:
    found = look(Machine(LINUX_6_17, device_file=DeviceFile(mode=0o600)))
    assert "mode 0600" in found["file"].value
    assert "chmod g+rw /dev/dri/renderD128" in found["file"].remedy


def test_a_containers_device_rules() -> None:
    """The mode would allow it, the open is refused all the same."""
    machine = Machine(LINUX_6_17)
    machine.inject("open", errno.EPERM, times=None, match="/dev/kfd")
    found = look(machine)
    assert "the mode allows it, the container's device rules do not" in found["/dev/kfd"].value
    assert CONTAINER in found["/dev/kfd"].remedy
    assert found["kfd memory"].value.startswith("kfd_open_failed")
    assert found["cs"].ok


def test_a_container_without_the_devices() -> None:
    found = look(Machine(LINUX_6_17, has_dri=False, has_kfd=False))
    assert wrong(found) == ["/dev/kfd", "renderD128", "file"]
    assert found["file"].value == "/dev/dri/renderD128 does not exist"
    assert CONTAINER in found["file"].remedy


def test_only_kfd_is_missing() -> None:
    found = look(Machine(LINUX_6_17, has_kfd=False))
    assert found["cs"].ok
    assert "kfd_open_failed (No such file or directory, errno 2)" in found["kfd memory"].value
    assert "kfd" not in found


def test_a_device_behind_which_nothing_answers() -> None:
    machine = Machine(LINUX_6_17)
    machine.inject("open", errno.ENXIO, times=None, match="renderD128")
    found = look(machine)
    assert "no device answers" in found["file"].value
    assert "dmesg" in found["file"].remedy


def test_a_device_file_that_is_broken_otherwise() -> None:
    machine = Machine(LINUX_6_17)
    machine.inject("open", EIO, times=None, match="renderD128")
    assert "Input/output error (errno 5)" in look(machine)["file"].value


# The card.


def test_no_resizable_bar() -> None:
    found = look(Machine(LINUX_6_17, [SMALL_BAR]))
    assert wrong(found) == ["BAR", "user queue"]
    assert found["BAR"].value == "the processor reaches 256.0 MiB of 16.00 GiB of VRAM"
    assert "Resizable BAR" in found["BAR"].remedy


def test_an_integrated_gpu_beside_a_card() -> None:
    found = look(Machine(LINUX_7_3_USERQ, [RAPHAEL, R9700]))
    assert wrong(found) == []
    assert found["AMD GPUs"].value == "2 driven by amdgpu; the runtime uses /dev/dri/renderD129"
    assert found["renderD128"].value.endswith("part of the processor: of those, gfx11.5 alone is used")
    assert "renderD128 memory" not in found
    assert found["renderD129 umq"].ok


def test_a_processors_gpu_of_gfx11_5() -> None:
    found = look(Machine(LINUX_6_17, [STRIX_HALO]))
    assert wrong(found) == ["user queue"]
    assert found["renderD128"].value == "gfx1151, 40 compute units, 512.0 MiB of VRAM"
    assert found["memory"].value == (
        "62.00 GiB of system memory (GTT), 512.0 MiB carved out; models use the larger part"
    )
    assert found["kfd"].ok
    assert found["cs"].ok


def test_a_card_goes_before_a_processors_gpu() -> None:
    found = look(Machine(LINUX_6_17, [STRIX_POINT, R9700]))
    assert found["AMD GPUs"].value == "2 driven by amdgpu; the runtime uses /dev/dri/renderD129"


def test_an_older_card() -> None:
    found = look(Machine(LINUX_6_17, [replace(RX7900XTX, gfx=(10, 3, 0))]))
    assert wrong(found) == ["renderD128"]
    assert "gfx1030" in found["renderD128"].value
    assert "written for gfx11, gfx11.5 and gfx12" in found["renderD128"].value


def test_a_card_of_gfx11() -> None:
    found = look(Machine(LINUX_6_17, [RX7900XTX]))
    assert wrong(found) == ["user queue"]
    assert found["kfd"].ok
    assert found["cs"].ok


# amdkfd.


def test_a_save_area_that_the_kernel_does_not_take() -> None:
    """The topology says other sizes than the kernel checks, as kernels from 6.12 on were seen to."""

    def other_sizes(linux: Process) -> None:
        real = linux.read_text

        def read(path: str) -> str:
            text = real(path)
            return text.replace("cwsr_size 30699520", "cwsr_size 30703616") if path.endswith("properties") else text

        linux.read_text = read  # type: ignore[method-assign]

    found = look(Machine(LINUX_6_17), other_sizes)
    line = found["kfd queue"]
    assert "the kernel says 0x1d48000 and 0x7000 where 0x1d47000 and 0x7000 are expected of gfx1201" in line.value


def test_create_queue_refused() -> None:
    machine = Machine(LINUX_6_17)
    machine.inject("KFD_CREATE_QUEUE", EINVAL)
    found = look(machine)
    line = found["kfd queue"]
    assert not line.ok
    assert "Linux 6.17.0-24-generic refuses the computed sizes: save area 0x1d47000, control stack 0x7000" in line.value
    assert "kfd" not in found
    assert found["cs"].ok


@pytest.mark.parametrize(
    ("call", "word"),
    [
        ("KFD_GET_VERSION", "get_version_failed"),
        ("KFD_ACQUIRE_VM", "acquire_vm_failed"),
        ("KFD_GET_PROCESS_APERTURES_NEW", "apertures_failed"),
        ("KFD_ALLOC_MEMORY_OF_GPU", "alloc_failed"),
        ("KFD_MAP_MEMORY_TO_GPU", "map_failed"),
    ],
)
def test_steps_of_kfd(call: str, word: str) -> None:
    machine = Machine(LINUX_6_17)
    machine.inject(call, ENOMEM)
    line = look(machine)["kfd memory"]
    assert line.value == f"{word} (Cannot allocate memory, errno 12)"
    assert line.remedy


def test_a_queue_that_fails_otherwise() -> None:
    machine = Machine(LINUX_6_17)
    machine.inject("KFD_CREATE_QUEUE", errno.ENOSPC)
    assert look(machine)["kfd queue"].value.startswith("create_queue_failed (No space left")


# Command submission.


@pytest.mark.parametrize(
    ("call", "word"),
    [("AMDGPU_CTX", "ctx_alloc_failed"), ("AMDGPU_CS", "cs_submit_failed"), ("AMDGPU_BO_LIST", "bo_list_failed")],
)
def test_steps_of_command_submission(call: str, word: str) -> None:
    machine = Machine(LINUX_6_17)
    machine.inject(call, ENOMEM)
    found = look(machine)
    assert found["cs smoke"].value == f"{word} (Cannot allocate memory, errno 12)"
    assert "cs" not in found
    assert found["kfd"].ok


# Other machines.


class OtherSystem(Linux):
    @property
    def is_linux(self) -> bool:
        return False


def test_another_system() -> None:
    assert gpu_findings(OtherSystem()) == [MachineFinding("AMD GPUs", "none: amdgpu exists on Linux only")]


def test_no_gpu() -> None:
    assert look(Machine(LINUX_6_17, []))["AMD GPUs"].value == "none: no render node in /sys/class/drm is AMD's"


def test_a_card_without_its_driver() -> None:
    class Pci(Linux):
        """A machine where amdgpu is not loaded."""

        def list_dir(self, path: str) -> list[str]:
            if path == "/sys/bus/pci/devices":
                return ["0000:00:1f.3", "0000:03:00.0"]
            raise OSError(errno.ENOENT, "no such folder", path)

        def read_text(self, path: str) -> str:
            card = "0000:03:00.0" in path
            return {"vendor": "0x1002\n", "class": "0x030000\n" if card else "0x040300\n"}[path.rpartition("/")[2]]

    (line,) = gpu_findings(Pci())
    assert not line.ok
    assert "0000:03:00.0 is an AMD display device" in line.value
    assert "modprobe amdgpu" in line.remedy


def test_the_real_system() -> None:
    """Whatever it has, it is reported and nothing raises."""
    found = gpu_findings()
    assert found[0].name == "AMD GPUs"
    assert all(f.value for f in found)


def test_the_command(zinc, monkeypatch: pytest.MonkeyPatch) -> None:
    """`zinc check` shows the lines, and `--json` has them."""
    with Machine(LINUX_6_17) as machine:
        linux = machine.process()
        monkeypatch.setattr("zinc_rt.cli.gpu.host", lambda: linux)
        monkeypatch.setattr("zinc_rt.cli.native.native_report", lambda folder: NativeReport((), None, 1, None, ()))
        outcome = zinc("check")
        tree = json.loads(zinc("check", "--json").out)
    assert re.search(r"^renderD128 user queue +!! +Linux 6\.17", outcome.out, re.MULTILINE)
    assert re.search(r"^renderD128 kfd +ok +a fence retired", outcome.out, re.MULTILINE)
    assert [f["name"] for f in tree["gpus"]][:2] == ["AMD GPUs", "/dev/kfd"]
