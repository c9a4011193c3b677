"""Topology files: real ones, odd ones, unreadable ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amdgpu_emu.machine import Machine
from amdgpu_emu.models import R9700, RAPHAEL
from tests.amdgpu.kfd.tamper import Files, NotLinux
from zinc_rt.amdgpu.kfd.topology import gpu_nodes, parse_properties, vram_sizes
from zinc_rt.seed.kfd import TOPOLOGY_NODES_DIR, TopologyNode, find_topology_node, reachable, render_minor_of

CPU = "cpu_cores_count 24\nsimd_count 0\ndrm_render_minor 0\n"
R9700_NODE = """\
cpu_cores_count 0
simd_count 128
mem_banks_count 1
max_waves_per_simd 16
wave_front_size 32
simd_per_cu 2
gfx_target_version 120001
vendor_id 4098
device_id 30033
drm_render_minor 128
cwsr_size 30699520
ctl_stack_size 28672
fw_version 3010
unique_id 4565675986337361990
num_xcc 1
"""


def files(**nodes: tuple[str | OSError, str | OSError]) -> Files:
    text: dict[str, str | OSError] = {}
    for name, (gpu_id, properties) in nodes.items():
        text[f"{TOPOLOGY_NODES_DIR}/{name[1:]}/gpu_id"] = gpu_id
        text[f"{TOPOLOGY_NODES_DIR}/{name[1:]}/properties"] = properties
    return Files(text)


def test_a_real_machine() -> None:
    linux = files(n0=("0\n", CPU), n1=("56387\n", R9700_NODE))
    node = TopologyNode(1, 56387, 120001, 128, 2, 1, 30699520, 28672, 128)
    assert find_topology_node(128, linux=linux) == node
    assert find_topology_node(129, linux=linux) is None
    assert gpu_nodes(linux) == [node]


def test_processors_are_no_match() -> None:
    assert find_topology_node(0, linux=files(n0=("0\n", CPU))) is None


def test_order_and_what_cannot_be_read() -> None:
    forbidden = PermissionError(1, "Operation not permitted")
    linux = files(
        n10=("7\n", "drm_render_minor 130\n"),
        n9=("8\n", "drm_render_minor 129\n"),
        n2=(forbidden, forbidden),
        n3=("5\n", forbidden),
        n4=("no number\n", R9700_NODE),
    )
    assert [node.node_index for node in gpu_nodes(linux)] == [9, 10]
    assert gpu_nodes(linux)[0].num_xcc == 1


def test_no_topology_no_linux() -> None:
    assert find_topology_node(128, linux=Files({})) is None
    assert find_topology_node(128, linux=NotLinux()) is None
    assert not reachable(linux=NotLinux())
    assert not reachable(linux=files(n1=("1\n", R9700_NODE)))


def test_properties_survive_anything_odd() -> None:
    text = "a 1\n\n b  2 \nc\nd x\ne -1\nf 0x10\ng \u0661\nh 18446744073709551616\ni 18446744073709551615\nj 1 2\n"
    assert parse_properties(text) == {"a": 1, "b": 2, "i": (1 << 64) - 1}
    assert parse_properties("k " + "9" * 9999) == {}


@given(st.text("renderD 0123456789\n\t-+_x\u0661\u00b2"))
def test_properties_never_fail(text: str) -> None:
    assert all(value >= 0 for value in parse_properties(text).values())


@pytest.mark.parametrize(
    ("path", "minor"),
    [
        ("/dev/dri/renderD128", 128),
        ("/dev/dri/renderD0", 0),
        ("renderD200", 200),
        ("/renderD1/renderD129", 129),
        ("/dev/dri/renderD4294967295", 4294967295),
        ("/dev/dri/renderD4294967296", None),
        ("/dev/dri/renderD", None),
        ("/dev/dri/card0", None),
        ("/dev/dri/renderD128/", None),
        ("/dev/dri/renderD-1", None),
        ("/dev/dri/renderD12 8", None),
        ("", None),
        ("renderD" + "9" * 5000, None),
    ],
)
def test_render_minor(path: str, minor: int | None) -> None:
    assert render_minor_of(path) == minor


@given(st.text("renderD 0123456789\n\t-+_x\u0661\u00b2"))
def test_render_minor_never_fails(path: str) -> None:
    assert render_minor_of(f"renderD{path}") is None or path.isdigit()


def test_emulated_machine() -> None:
    with Machine(models=[RAPHAEL, R9700]) as machine:
        linux = machine.process()
        assert reachable(linux=linux)
        igpu, card = gpu_nodes(linux)
        assert (igpu.gfx_target_version, card.gfx_target_version) == (100306, 120001)
        assert (card.cwsr_size, card.ctl_stack_size, card.drm_render_minor) == (0x1D47000, 0x7000, 129)
        assert vram_sizes(linux, card) == (R9700.vram, R9700.vram)
        machine.device_file = type(machine.device_file)(mode=0o600)
        assert not reachable(linux=linux)


def test_vram_sizes_that_nobody_tells() -> None:
    assert vram_sizes(Files({}), TopologyNode(1, 1)) == (0, 0)
