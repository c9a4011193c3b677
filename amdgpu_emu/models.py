"""The GPUs that can be emulated, with the properties that distinguish cards.

Sources: public topology reports, headers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

GIB = 1 << 30
MIB = 1 << 20


@dataclass(frozen=True)
class Firmware:
    """Firmware versions that the driver reports; some of its features depend on them."""

    me: int = 3110
    pfp: int = 3210
    mec: int = 3470
    mes: int = 150
    sdma: int = 400
    rlc: int = 290
    smc: int = 0x00684A00


@dataclass(frozen=True)
class GpuModel:
    """A card that can be emulated.

    Attributes:
        gfx: version of the graphics core: major, minor, stepping; (12, 0, 1) is gfx1201.
        cu: compute units.
        vram: bytes of VRAM.
        visible_vram: bytes of VRAM that the processor can map; None: all of it (a resizable BAR).
        gtt: bytes of system memory that the card can map.
        compute_rings: kernel rings for compute.
        memory_gbps: Gbit/s of each of the memory's pins.
        l2, infinity: bytes of the L2 and of the Infinity Cache behind it.
        integrated: whether the GPU is part of a processor.
    """

    name: str
    device_id: int
    gfx: tuple[int, int, int]
    cu: int
    shader_engines: int
    vram: int
    visible_vram: int | None = None
    gtt: int = 16 * GIB
    compute_rings: int = 4
    clock_mhz: int = 2350
    memory_clock_mhz: int = 1258
    memory_bits: int = 256
    memory_gbps: float = 20.0
    l2: int = 8 * MIB
    infinity: int = 64 * MIB
    integrated: bool = False
    firmware: Firmware = field(default_factory=Firmware)

    @property
    def gfx_target_version(self) -> int:
        """The version of the graphics core as sysfs prints it: 120001 for gfx1201."""
        major, minor, stepping = self.gfx
        return major * 10000 + minor * 100 + stepping

    @property
    def ip(self) -> tuple[int, int, int]:
        """The version of the graphics core in the card's own table, where compilers have another for some (amdkfd)."""
        return _IP.get(self.gfx, self.gfx)

    @property
    def mappable_vram(self) -> int:
        """Bytes of VRAM that the processor can map."""
        return self.vram if self.visible_vram is None else self.visible_vram

    @property
    def data_heap(self) -> str:
        """The heap that holds weights: "vram", or of a part of a processor "gtt" if that is larger."""
        return "gtt" if self.integrated and self.gtt > self.vram else "vram"

    @property
    def memory(self) -> int:
        """Bytes of it."""
        return self.gtt if self.data_heap == "gtt" else self.vram

    @property
    def pins(self) -> float:
        """Bytes per second of the memory's pins."""
        return self.memory_bits * self.memory_gbps * 1e9 / 8

    @property
    def waves(self) -> int:
        """Waves of 32 lanes at once, as the driver counts them for the save area."""
        return self.cu * 32

    @property
    def ctl_stack_size(self) -> int:
        """Bytes of a queue's control stack in its save area."""
        size = _page_round(12 * self.waves + 8 + 40)
        return min(size, 0x7000) if self.gfx[0] == 10 else size

    @property
    def cwsr_size(self) -> int:
        """Bytes of a queue's save area, without the debugger's part."""
        vgpr = 0x60000 if self.gfx in _BIG_VGPR else 0x40000
        return self.cu * (vgpr + 0x4000 + 0x10000 + 0x1000) + self.ctl_stack_size

    @property
    def debug_memory_size(self) -> int:
        """Bytes of the debugger's part, which sysfs does not report."""
        return (self.waves * 32 + 63) // 64 * 64


_BIG_VGPR = {(11, 0, 0), (11, 0, 1), (11, 5, 1), (12, 0, 0), (12, 0, 1)}
_IP = {(9, 4, 2): (9, 4, 3), (11, 0, 1): (11, 0, 3), (11, 0, 3): (11, 0, 1)}


def vgprs_per_simd(gfx: tuple[int, int, int]) -> int:
    """Vector registers of 32 lanes that a SIMD of a graphics core has."""
    return 1536 if gfx in _BIG_VGPR else 1024


def _page_round(n: int) -> int:
    return (n + 4095) // 4096 * 4096


R9700 = GpuModel("AMD Radeon AI PRO R9700", 0x7551, (12, 0, 1), 64, 4, 32 * GIB)
RX9070 = GpuModel("AMD Radeon RX 9070", 0x7550, (12, 0, 1), 56, 4, 16 * GIB)
RX9070XT = GpuModel("AMD Radeon RX 9070 XT", 0x7550, (12, 0, 1), 64, 4, 16 * GIB)
RX9060XT = GpuModel(
    "AMD Radeon RX 9060 XT", 0x7590, (12, 0, 0), 32, 2, 16 * GIB, memory_bits=128, l2=4 * MIB, infinity=32 * MIB
)
RX7900XTX = GpuModel(
    "AMD Radeon RX 7900 XTX", 0x744C, (11, 0, 0), 96, 6, 24 * GIB, clock_mhz=2499, memory_bits=384, l2=6 * MIB,
    infinity=96 * MIB,
)  # fmt: skip
RX7800XT = GpuModel(
    "AMD Radeon RX 7800 XT", 0x747E, (11, 0, 1), 60, 3, 16 * GIB, clock_mhz=2430, memory_clock_mhz=1219,
    memory_gbps=19.5, l2=4 * MIB, infinity=64 * MIB,
)  # fmt: skip
RX7600 = GpuModel(
    "AMD Radeon RX 7600", 0x7480, (11, 0, 2), 32, 2, 8 * GIB, clock_mhz=2655, memory_clock_mhz=1125, memory_bits=128,
    memory_gbps=18.0, l2=2 * MIB, infinity=32 * MIB,
)  # fmt: skip
SMALL_BAR = GpuModel("AMD Radeon RX 9070 without resizable BAR", 0x7550, (12, 0, 1), 56, 4, 16 * GIB, 256 * MIB)
RAPHAEL = GpuModel(
    "AMD Radeon Graphics", 0x164E, (10, 3, 6), 2, 1, 512 * MIB, gtt=8 * GIB, memory_bits=128, memory_gbps=5.2,
    l2=MIB // 4, infinity=0, integrated=True,
)  # fmt: skip
MI300X = GpuModel(
    "AMD Instinct MI300X", 0x74A1, (9, 4, 2), 304, 4, 192 * GIB, clock_mhz=2100, memory_bits=8192, memory_gbps=5.2,
    l2=4 * MIB, infinity=256 * MIB,
)  # fmt: skip
"""Of another family, whose packets nothing here knows: what looks for cards has to refuse it by name."""
STRIX_HALO = GpuModel(
    "AMD Radeon 8060S", 0x1586, (11, 5, 1), 40, 2, 512 * MIB, gtt=62 * GIB, clock_mhz=2900, memory_clock_mhz=1000,
    memory_gbps=8.0, l2=2 * MIB, infinity=32 * MIB, integrated=True,
)  # fmt: skip
"""Of a Ryzen AI Max+ 395 with 128 GB of LPDDR5X-8000, half of which the kernel lets the GPU map."""
STRIX_POINT = GpuModel(
    "AMD Radeon 890M", 0x150E, (11, 5, 0), 16, 1, 512 * MIB, gtt=15 * GIB, clock_mhz=2900, memory_clock_mhz=937,
    memory_bits=128, memory_gbps=7.5, l2=2 * MIB, infinity=0, integrated=True,
)  # fmt: skip
"""Of a Ryzen AI 9 HX 370 with 32 GB of LPDDR5X-7500."""
MODELS = {
    "r9700": R9700, "rx9070": RX9070, "rx9070xt": RX9070XT, "rx9060xt": RX9060XT, "rx7900xtx": RX7900XTX,
    "rx7800xt": RX7800XT, "rx7600": RX7600, "small-bar": SMALL_BAR, "raphael": RAPHAEL,
    "strix-halo": STRIX_HALO, "strix-point": STRIX_POINT,
}  # fmt: skip
