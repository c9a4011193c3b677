"""The numbers of the cost model that are a card's own: each with its source and the interval in which it may lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final


@dataclass(frozen=True)
class Interval:
    """A number that is not known exactly. unit: empty for a share or a count."""

    low: float
    likely: float
    high: float
    unit: str = ""
    source: str = ""

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def _of(low: float, likely: float, high: float, unit: str, source: str) -> Any:
    return field(default=likely, metadata={"interval": Interval(low, likely, high, unit, source)})


@dataclass(frozen=True)
class CardConstants:
    """What the model takes a card to be; the defaults are likely values. `INTERVALS` has their limits and sources."""

    bandwidth: float = _of(
        0.75,
        0.90,
        0.95,
        "of the pins' rate",
        "gfx12: users of other runtimes publish 86 % from end to end with an 8B model on an RX 9070 XT, which barriers"
        " do not help; refresh and turning from reads to writes take 5 to 10 % of GDDR6; low: kernels with too few"
        " loads under way",
    )
    bandwidth_gfx11: float = _of(
        0.55,
        0.66,
        0.82,
        "of the pins' rate",
        "users of other runtimes publish 54 % from end to end with an 8B model on an RX 7900 XTX, 78 % with a 32B model"
        " on an RX 7900 XT",
    )
    bandwidth_gfx11_5: float = _of(
        0.60,
        0.80,
        0.86,
        "of the pins' rate",
        "users publish 212 to 215 GB/s of 256 for copies on Strix Halo; of other runtimes, from end to end, 68 % with a"
        " 30B-A3B model and 50 % with a 35B-A3B one",
    )
    piece: float = _of(
        0.35e-6,
        1.05e-6,
        2.1e-6,
        "s a matrix of an expert that a row chose",
        "derived: it begins where no translation is cached and no DRAM row is open, so two levels of page tables and"
        " the first data come one after the other, three latencies of idle memory; one where translations are cached,"
        " twice as much in memory that is kept busy. Users of other runtimes publish 166.8 tokens/s at best for a"
        " 35B-A3B model on gfx1201, half of the pins' rate",
    )
    clock: float = _of(
        0.85,
        1.0,
        1.2,
        "of the clock in sysfs",
        "a slowdown of 19 % on some boards was published for raw PM4; cards boost above what drivers say",
    )
    first_level: float = _of(40e-9, 50e-9, 65e-9, "s", "published pointer chases on RDNA 2 to 4, vector cache")
    l2: float = _of(110e-9, 130e-9, 160e-9, "s", "published pointer chases on RDNA 3 and 4, L2")
    infinity: float = _of(170e-9, 200e-9, 260e-9, "s", "published pointer chases on RDNA 3 and 4, Infinity Cache")
    memory_idle: float = _of(320e-9, 350e-9, 420e-9, "s", "published pointer chases on RDNA 3 and 4, memory")
    memory_loaded: float = _of(600e-9, 700e-9, 800e-9, "s", "published latencies of memory that is kept busy")
    infinity_rate: float = _of(
        48,
        64,
        96,
        "bytes a memory clock and 16 pins",
        "assumed: 16 channels of 64 bytes on 256 pins, at the memory's clock and up to twice it",
    )
    l2_rate: float = _of(16, 24, 32, "bytes a cycle of a compute unit", "2048 bytes a cycle on 64 to 80 compute units")
    cache_rate: float = _of(
        64, 64, 128, "bytes a cycle of a compute unit", "half a line: an assumption, on the slow side"
    )
    lds_rate: float = _of(
        128, 128, 128, "bytes a cycle of a compute unit", "32 banks of 4 bytes (RDNA 4 ISA guide, local data share)"
    )
    lds_cycles: float = _of(20, 20, 40, "cycles", "LLVM's SISchedule.td, WriteLDS; conflicts above")
    dependent_cycles: float = _of(4, 4, 5, "cycles", "LLVM's SISchedule.td: Write32Bit is 5, one of them its own")
    packet: float = _of(
        16e-9, 60e-9, 250e-9, "s", "16 ns is published for a dispatch packet of gfx1201; registers are set before it"
    )
    wave_cycles: float = _of(1, 2, 4, "cycles a wave and shader engine", "assumed: one workgroup manager an engine")
    drain: float = _of(
        0.0,
        0.5,
        1.0,
        "of a wave's time",
        "assumed: waves end over the time of one of them, and while they do the card is half empty",
    )
    barrier: float = _of(
        1.0e-6,
        1.5e-6,
        2.0e-6,
        "s",
        "2 to 2.7 us a barrier are published (733 retained dispatches in 4.94 ms, 2.94 of which are bytes), less the"
        " first latency and the launch, which the model counts apart",
    )
    full_barrier: float = _of(0.3e-6, 1.0e-6, 3.0e-6, "s", "assumed: writing back and dropping the L2, beside the wait")
    meeting: float = _of(
        0.4e-6,
        0.6e-6,
        1.2e-6,
        "s",
        "assumed, of a resident program's workgroups: three ways to the L2 (stores, an atomic, a look at the counter),"
        " two barriers, and a hundred to two hundred atomics on one address",
    )
    submission: float = _of(
        8e-6,
        20e-6,
        60e-6,
        "s",
        "assumed: from the doorbell to the first wave, and from the fence to the program that polls it",
    )


LIKELY: Final = CardConstants()
INTERVALS: Final[dict[str, Interval]] = {f.name: f.metadata["interval"] for f in fields(CardConstants)}


def spread(seconds: Callable[[CardConstants], float]) -> Interval:
    """The seconds of likely constants, and how far they go when all constants take the limits that make them less, or
    more. Nobody has run these kernels, and what is wrong of one constant may well be wrong of all.
    """
    least, most = {}, {}
    for name, limits in INTERVALS.items():
        by_time = sorted((limits.low, limits.high), key=lambda value: seconds(replace(LIKELY, **{name: value})))
        least[name], most[name] = by_time
    return Interval(seconds(replace(LIKELY, **least)), seconds(LIKELY), seconds(replace(LIKELY, **most)), "s")


def rates(seconds: Interval, n: float = 1.0, unit: str = "tokens/s") -> Interval:
    """`n` in so many seconds, each second."""
    return Interval(n / seconds.high, n / seconds.likely, n / seconds.low, unit)
