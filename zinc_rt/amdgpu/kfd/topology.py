"""The GPUs that amdkfd knows, from its files in sysfs.

Every processor and GPU is a node: a folder with a file `gpu_id` (0 for processors) and a file `properties` of lines
"name value". A container without the GPU's device gets EPERM for them.
"""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.amdgpu.interface import DEFAULT_RENDER_NODE
from zinc_rt.amdgpu.kfd.constants import KFD_DEVICE_NODE, TOPOLOGY_NODES_DIR
from zinc_rt.utils.linux import Linux, host

_U32, _U64 = (1 << 32) - 1, (1 << 64) - 1


@dataclass(frozen=True)
class TopologyNode:
    """A GPU.

    node_index: number of its folder; gpu_id: what ioctls call it; gfx_target_version: 120001 for gfx1201; cwsr_size,
    ctl_stack_size: bytes of a queue's save area; drm_render_minor: 128 for /dev/dri/renderD128.
    """

    node_index: int
    gpu_id: int
    gfx_target_version: int = 0
    simd_count: int = 0
    simd_per_cu: int = 0
    num_xcc: int = 1
    cwsr_size: int = 0
    ctl_stack_size: int = 0
    drm_render_minor: int = 0


def render_minor_of(render_node: str) -> int | None:
    """128 of /dev/dri/renderD128; None when the path does not end in "renderD" and digits."""
    _, found, digits = str(render_node).rpartition("renderD")
    return _unsigned(digits, _U32) if found else None


def parse_properties(text: str) -> dict[str, int]:
    """Names and values; a line that is not a name and an unsigned decimal number counts as not there."""
    properties = {}
    for line in text.splitlines():
        name, _, digits = line.strip().partition(" ")
        value = _unsigned(digits.strip(), _U64)
        if value is not None:
            properties[name] = value
    return properties


def node_properties(linux: Linux, node_index: int) -> dict[str, int]:
    """Everything that a node's file tells, {} when it cannot be read."""
    try:
        return parse_properties(linux.read_text(f"{TOPOLOGY_NODES_DIR}/{node_index}/properties"))
    except OSError:
        return {}


def gpu_nodes(linux: Linux) -> list[TopologyNode]:
    """All GPUs whose files can be read. Raises `OSError` when there is no topology."""
    indices = (_unsigned(name, _U32) for name in linux.list_dir(TOPOLOGY_NODES_DIR))
    nodes = (_read_node(linux, index) for index in sorted(i for i in indices if i is not None))
    return [node for node in nodes if node is not None]


def vram_sizes(linux: Linux, node: TopologyNode) -> tuple[int, int]:
    """Bytes of a GPU's memory, and of what the processor reaches of it: all with a resizable BAR. 0 when unknown."""
    folder = f"/sys/class/drm/renderD{node.drm_render_minor}/device"
    sizes = []
    for name in ("mem_info_vram_total", "mem_info_vis_vram_total"):
        try:
            sizes.append(_unsigned(linux.read_text(f"{folder}/{name}").strip(), _U64) or 0)
        except OSError:
            sizes.append(0)
    return sizes[0], sizes[1]


def find_topology_node(render_minor: int, *, linux: Linux | None = None) -> TopologyNode | None:
    """The GPU with that render minor; None when there is none, no topology, or no Linux."""
    linux = linux or host()
    if not linux.is_linux:
        return None
    try:
        nodes = gpu_nodes(linux)
    except OSError:
        return None
    return next((node for node in nodes if node.drm_render_minor == render_minor), None)


def reachable(*, linux: Linux | None = None) -> bool:
    """Whether /dev/kfd opens and the topology has the GPU of the default render node. No ioctl is made."""
    linux = linux or host()
    if not linux.is_linux:
        return False
    try:
        linux.close(linux.open(KFD_DEVICE_NODE))
    except OSError:
        return False
    minor = render_minor_of(DEFAULT_RENDER_NODE)
    return minor is not None and find_topology_node(minor, linux=linux) is not None


def _read_node(linux: Linux, index: int) -> TopologyNode | None:
    try:
        gpu_id = _unsigned(linux.read_text(f"{TOPOLOGY_NODES_DIR}/{index}/gpu_id").strip(), _U32)
        properties = parse_properties(linux.read_text(f"{TOPOLOGY_NODES_DIR}/{index}/properties"))
    except OSError:
        return None
    if not gpu_id:
        return None
    return TopologyNode(
        index,
        gpu_id,
        properties.get("gfx_target_version", 0),
        properties.get("simd_count", 0),
        properties.get("simd_per_cu", 0),
        properties.get("num_xcc", 1),
        properties.get("cwsr_size", 0),
        properties.get("ctl_stack_size", 0),
        properties.get("drm_render_minor", 0),
    )


def _unsigned(digits: str, limit: int) -> int | None:
    if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(limit))):
        return None
    value = int(digits)
    return value if value <= limit else None
