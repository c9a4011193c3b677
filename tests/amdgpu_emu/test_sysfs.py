"""sysfs and device files: text as the kernel prints it, several GPUs, permissions, containers (section 6)."""

from __future__ import annotations

import errno
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from amdgpu_emu.machine import DeviceFile, Machine
from amdgpu_emu.models import MODELS, R9700, RAPHAEL, RX7900XTX, RX9060XT, RX9070, SMALL_BAR, Firmware, GpuModel
from amdgpu_emu.process import Process
from amdgpu_emu.profiles import LINUX_6_12, LINUX_6_17, LINUX_7_3, LINUX_7_3_USERQ, KernelProfile
from tests.amdgpu_emu.kfd.stage import refused

FIXTURE = Path(__file__).parent / "fixtures" / "topology_r9700"
ROOT = "/sys/devices/virtual/kfd/kfd/topology"
NODES = f"{ROOT}/nodes"
MODELS_ = pytest.mark.parametrize("model", MODELS.values(), ids=list(MODELS))


def process(model: GpuModel = R9700, profile: KernelProfile = LINUX_6_17) -> Process:
    return Machine(profile, [model]).process()


def properties(text: str) -> dict[str, int]:
    return {key: int(value) for key, value in (line.split(" ") for line in text.splitlines())}


@pytest.mark.parametrize("profile", [LINUX_6_12, LINUX_6_17], ids=lambda p: p.name)
def test_an_r9700_reads_byte_for_byte_as_the_real_one(profile: KernelProfile) -> None:
    """The card of the fixture has other firmware, and as much memory as its report says."""
    card = replace(R9700, vram=34208743424, firmware=Firmware(mec=3010, sdma=849))
    machine = Machine(profile, [card])
    machine.gpus[0].gpu_id = 56387
    linux = machine.process()
    files = [path for path in sorted(FIXTURE.rglob("*")) if path.is_file()]
    assert len(files) == 12
    for path in files:
        name = path.relative_to(FIXTURE)
        assert linux.read_text(f"{ROOT}/{name}") == path.read_text(encoding="ascii"), name


def test_new_kernels_add_a_line_and_a_bit() -> None:
    old = process().read_text(f"{NODES}/1/properties").splitlines()
    new = process(profile=LINUX_7_3).read_text(f"{NODES}/1/properties").splitlines()
    at = next(i for i, line in enumerate(new) if line.startswith("capability "))
    assert new[at + 1] == "capability2 0"
    assert int(new[at].split()[1]) == int(old[at].split()[1]) | 1 << 31
    assert new[:at] + new[at + 2 :] == old[:at] + old[at + 1 :]


@MODELS_
def test_every_card_has_its_node(model: GpuModel) -> None:
    linux = process(model)
    node = properties(linux.read_text(f"{NODES}/1/properties"))
    assert node["simd_count"] == 2 * model.cu
    assert node["gfx_target_version"] == model.gfx_target_version
    assert (node["cwsr_size"], node["ctl_stack_size"]) == (model.cwsr_size, model.ctl_stack_size)
    assert node["caches_count"] == len(linux.list_dir(f"{NODES}/1/caches"))
    arrays = node["array_count"] * node["cu_per_simd_array"]
    assert model.cu <= arrays < model.cu + 2 * node["array_count"]
    assert len(linux.read_text(f"{NODES}/1/properties")) < 4096, "programs read one page"
    banks = properties(linux.read_text(f"{NODES}/1/mem_banks/0/properties"))
    assert banks["size_in_bytes"] == model.vram


@pytest.mark.parametrize(
    ("model", "cwsr", "ctl"),
    [(R9700, 0x1D47000, 0x7000), (RX9070, 0x199E000, 0x6000), (RX9060XT, 0xEA4000, 0x4000)],
)
def test_save_areas_of_known_cards(model: GpuModel, cwsr: int, ctl: int) -> None:
    node = properties(process(model).read_text(f"{NODES}/1/properties"))
    assert (node["cwsr_size"], node["ctl_stack_size"]) == (cwsr, ctl)


def test_heaps_tell_a_small_bar() -> None:
    kinds = [
        properties(process(model).read_text(f"{NODES}/1/mem_banks/0/properties"))["heap_type"]
        for model in (R9700, SMALL_BAR)
    ]
    assert kinds == [1, 2]


def test_several_gpus() -> None:
    machine = Machine(models=[R9700, RX7900XTX, RAPHAEL])
    linux = machine.process()
    assert linux.list_dir(NODES) == ["0", "1", "2", "3"]
    ids = [int(linux.read_text(f"{NODES}/{n}/gpu_id")) for n in range(4)]
    assert ids[0] == 0
    assert ids[1:] == [gpu.gpu_id for gpu in machine.gpus]
    assert len(set(ids)) == 4
    assert all(0 < n < 1 << 16 for n in ids[1:])
    nodes = [properties(linux.read_text(f"{NODES}/{n}/properties")) for n in range(1, 4)]
    assert [node["drm_render_minor"] for node in nodes] == [128, 129, 130]
    assert len({node["location_id"] for node in nodes}) == 3
    assert nodes[1]["simd_id_base"] - nodes[0]["simd_id_base"] == R9700.cu
    assert [node["p2p_links_count"] for node in nodes] == [1, 1, 0]
    link = properties(linux.read_text(f"{NODES}/1/p2p_links/0/properties"))
    assert (link["node_from"], link["node_to"], link["type"]) == (1, 2, 2)
    assert properties(linux.read_text(f"{NODES}/0/properties"))["io_links_count"] == 3
    assert linux.list_dir(f"{NODES}/0/io_links") == ["0", "1", "2"]
    assert linux.read_text(f"{ROOT}/generation_id") == "4\n"
    machine.close()


def test_caches_name_who_shares_them() -> None:
    text = process().read_text(f"{NODES}/1/caches/64/properties")
    lines = dict(line.split(" ") for line in text.splitlines())
    assert (lines["level"], lines["type"]) == ("1", "1")
    assert lines["sibling_map"].split(",")[:4] == ["1", "1", "0", "0"]


# The module and the card.


@pytest.mark.parametrize(("profile", "text"), [(LINUX_6_17, "-1\n"), (LINUX_7_3, "-1\n"), (LINUX_7_3_USERQ, "1\n")])
def test_the_parameter_of_user_queues(profile: KernelProfile, text: str) -> None:
    linux = process(profile=profile)
    assert linux.read_text("/sys/module/amdgpu/parameters/user_queue") == text


def test_old_kernels_have_no_such_parameter() -> None:
    linux = process(profile=LINUX_6_12)
    with refused(errno.ENOENT):
        linux.read_text("/sys/module/amdgpu/parameters/user_queue")
    assert "user_queue" not in linux.list_dir("/sys/module/amdgpu/parameters")


def test_the_kernels_own_driver_has_no_version_file() -> None:
    with refused(errno.ENOENT):
        process().read_text("/sys/module/amdgpu/version")


def test_a_cards_folder() -> None:
    linux = process(SMALL_BAR)
    root = "/sys/class/drm/renderD128/device"
    assert linux.read_text(f"{root}/vendor") == "0x1002\n"
    assert linux.read_text(f"{root}/device") == "0x7550\n"
    assert linux.read_text(f"{root}/mem_info_vram_total") == f"{16 << 30}\n"
    assert linux.read_text(f"{root}/mem_info_vis_vram_total") == f"{256 << 20}\n"
    uevent = dict(line.split("=") for line in linux.read_text(f"{root}/uevent").splitlines())
    assert uevent["DRIVER"] == "amdgpu"
    assert uevent["PCI_ID"] == "1002:7550"
    assert uevent["PCI_SLOT_NAME"] == "0000:05:00.0"
    location = properties(linux.read_text(f"{NODES}/1/properties"))["location_id"]
    assert location == 5 << 8


@pytest.mark.parametrize("block", ["11", "GC"])
def test_ip_discovery(block: str) -> None:
    linux = process()
    parts = [
        linux.read_text(f"/sys/class/drm/renderD128/device/ip_discovery/die/0/{block}/0/{name}")
        for name in ("major", "minor", "revision")
    ]
    assert parts == ["12\n", "0\n", "1\n"]


def test_memory_in_use() -> None:
    machine = Machine()
    linux = machine.process()
    path = "/sys/class/drm/renderD128/device/mem_info_vram_used"
    assert linux.read_text(path) == "0\n"
    machine.gpus[0].used = dict.fromkeys(machine.gpus[0].used, 4096)
    assert linux.read_text(path) == "4096\n"


# Paths.


def test_paths_that_are_not_there() -> None:
    linux = process()
    with refused(errno.ENOENT):
        linux.read_text("/sys/class/drm/renderD129/device/vendor")
    with refused(errno.ENOENT):
        linux.list_dir("/sys/class/nothing")
    with refused(errno.ENOENT):
        linux.stat("/dev/dri/renderD129")
    with refused(errno.EISDIR):
        linux.read_text(NODES)
    with refused(errno.ENOTDIR):
        linux.list_dir(f"{NODES}/0/gpu_id")
    assert linux.list_dir("/sys/class/drm/") == [
        "card1-DP-1",
        "card1-DP-2",
        "card1-DP-3",
        "card1-HDMI-A-1",
        "renderD128",
    ]
    assert linux.list_dir("/dev") == ["dri", "kfd"]


def test_screens() -> None:
    with Machine(models=[R9700, R9700], displays={1: ["DP-2"]}) as machine:
        linux = machine.process()
        assert linux.list_dir("/sys/class/drm/renderD129/device/drm") == ["card2", "renderD129"]
        for card, words in (("card1", ("disconnected", "disabled")), ("card2", ("connected", "enabled"))):
            found = tuple(
                linux.read_text(f"/sys/class/drm/{card}-DP-2/{file}").strip() for file in ("status", "enabled")
            )
            assert found == words


def test_processes_and_boots() -> None:
    with Machine(machine_id="abc") as machine, Machine() as other:
        first, second = machine.process(), machine.process()
        assert first.read_text("/etc/machine-id") == "abc\n" != other.process().read_text("/etc/machine-id")
        boot = "/proc/sys/kernel/random/boot_id"
        assert first.read_text(boot) == second.read_text(boot) != other.process().read_text(boot)
        path = f"/proc/{second.pid()}/stat"
        assert first.read_text(path) == second.read_text(path)
        assert first.read_text(path) != first.read_text(f"/proc/{first.pid()}/stat")
        second.open("/dev/kfd")
        second.kill()
        with refused(errno.ENOENT):
            first.read_text(path)


def test_kinds_of_files() -> None:
    linux = process()
    assert stat.S_ISDIR(linux.stat(NODES).st_mode)
    assert stat.S_ISREG(linux.stat(f"{NODES}/0/gpu_id").st_mode)
    for path in ("/dev/kfd", "/dev/dri/renderD128"):
        found = linux.stat(path)
        assert stat.S_ISCHR(found.st_mode)
        assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o660, 0, 992)


# Permissions.


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({}, True),
        ({"groups": (1000,)}, False),
        ({"groups": (1000,), "uid": 0}, True),
        ({"groups": (1000,), "device_file": DeviceFile(mode=0o666)}, True),
        ({"groups": (1000,), "device_file": DeviceFile(mode=0o664)}, False),
        ({"device_file": DeviceFile(mode=0o640)}, False),
        ({"device_file": DeviceFile(mode=0o606)}, False),
        ({"groups": (44,), "device_file": DeviceFile(gid=44)}, True),
        ({"groups": (), "device_file": DeviceFile(uid=1000, mode=0o600)}, True),
        ({"device_file": DeviceFile(uid=1000, mode=0o066)}, False),
    ],
)
@pytest.mark.parametrize("path", ["/dev/kfd", "/dev/dri/renderD128"])
def test_who_may_open(path: str, options: dict[str, object], allowed: bool) -> None:
    with Machine(**options) as machine:  # type: ignore[arg-type]
        linux = machine.process()
        if allowed:
            linux.close(linux.open(path))
            return
        with refused(errno.EACCES):
            linux.open(path)
        assert linux.stat(path).st_gid == machine.device_file.gid, "stat needs no right to open"


@pytest.mark.parametrize(("has_kfd", "has_dri"), [(False, True), (True, False), (False, False)])
def test_a_container_without_devices(has_kfd: bool, has_dri: bool) -> None:
    with Machine(has_kfd=has_kfd, has_dri=has_dri) as machine:
        linux = machine.process()
        for path, there in (("/dev/kfd", has_kfd), ("/dev/dri/renderD128", has_dri)):
            if not there:
                with refused(errno.ENOENT):
                    linux.open(path)
                with refused(errno.ENOENT):
                    linux.stat(path)
        assert linux.list_dir(NODES) == ["0", "1"]
        if not has_dri:
            with refused(errno.EPERM):
                linux.read_text(f"{NODES}/1/gpu_id")
        assert linux.read_text(f"{NODES}/0/gpu_id") == "0\n"


def test_old_firmware_has_no_user_queues() -> None:
    old = Firmware(me=3000, pfp=3100, mec=3060, mes=130)  # enough for 6.16 to 6.18
    assert replace(LINUX_6_17, user_queue=1).offers_user_queues(old)
    assert not LINUX_7_3_USERQ.offers_user_queues(old)
    assert LINUX_7_3_USERQ.offers_user_queues(R9700.firmware)
    assert not replace(LINUX_7_3_USERQ, user_queue=0).offers_user_queues(R9700.firmware)
