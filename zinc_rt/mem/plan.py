"""The memory plan: the needs of a model, compared with the available memory before anything is loaded."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path

from zinc_rt.errors import UsageError
from zinc_rt.mem.cgroup import ROOT, limiting_folders
from zinc_rt.mem.errors import MemoryPlanError
from zinc_rt.utils.checks import show

MIB = 1 << 20
HEADROOM = 64 * MIB
"""Bytes that the plan leaves to the interpreter, its libraries and the tokenizer."""


@dataclass(frozen=True)
class MemoryPlan:
    """The memory that a model needs, in bytes by purpose. weights: as the kernels read them, repacked (native) or views
    of the mapped file (reference); unpacked: the reference kernels' integer form of them; recurrent: states of
    recurrent layers; snapshots: copies of these states; kept_free: memory of a GPU that stays free, beside what is
    available; main_model: all memory of the model that this one drafts for on the same device; streamed: the size of
    the file from which steps read those weights that are not in memory.
    """

    weights: int
    unpacked: int
    kv_cache: int
    scratch: int
    constants: int
    available: int | None
    recurrent: int = 0
    snapshots: int = 0
    kept_free: int = 0
    main_model: int = 0
    streamed: int = 0

    @property
    def total(self) -> int:
        """All bytes that the engine may use. KV pages are touched as sequences grow."""
        states = self.kv_cache + self.recurrent + self.snapshots
        return self.weights + self.unpacked + states + self.scratch + self.constants + self.main_model

    @property
    def fits(self) -> bool:
        """Whether the available memory has room for it, with headroom."""
        return self.available is None or self.total + HEADROOM <= self.available

    @property
    def left(self) -> int:
        """Bytes that the plan leaves of the available memory, with headroom; 0 where that is unknown or too little."""
        return 0 if self.available is None else max(0, self.available - self.total - HEADROOM)

    def check(self, otherwise: str = "") -> None:
        """Raise `MemoryPlanError` with the numbers when the plan exceeds the available memory. otherwise: what else the
        user can do.
        """
        if not self.fits:
            raise MemoryPlanError(
                f"not enough memory: {self} need {format_bytes(self.total + HEADROOM)} with headroom,"
                f" {format_bytes(self.available or 0)} are available{self._kept}; use a smaller context (-c), a smaller"
                f" batch (-b) or a smaller model{otherwise}"
            )

    def __str__(self) -> str:
        parts = [
            ("weights in memory" if self.streamed else "weights", self.weights),
            ("unpacked weights", self.unpacked),
            ("KV cache", self.kv_cache),
            ("recurrent state", self.recurrent),
            ("its snapshots", self.snapshots),
            ("scratch", self.scratch),
            ("tables", self.constants),
            ("the model that it drafts for", self.main_model),
        ]
        return ", ".join(f"{name} {format_bytes(size)}" for name, size in parts if size)

    @property
    def summary(self) -> str:
        """The plan in one line: the total, its parts, and the available memory."""
        there = "" if self.available is None else f", {format_bytes(self.available)} available{self._kept}"
        return f"memory {format_bytes(self.total)} ({self}){there}"

    @property
    def _kept(self) -> str:
        return f" ({format_bytes(self.kept_free)} more, a tenth, stay free)" if self.kept_free else ""

    def as_dict(self) -> dict[str, int | None]:
        """The fields and the total, in bytes."""
        return {**asdict(self), "total": self.total}


def kept_free(n_bytes: int) -> int:
    """Bytes that stay free of a GPU's memory, a tenth: when it is full, drivers move other programs' memory, or stop
    queues to make room.
    """
    return n_bytes // 10


def format_bytes(n: int) -> str:
    """A size as people read it: 512 B, 3.2 MiB, 1.50 GiB."""
    if n < 1024:
        return f"{n} B"
    if n < MIB:
        return f"{n / 1024:.1f} KiB"
    if n < 1024 * MIB:
        return f"{n / MIB:.1f} MiB"
    return f"{n / (1024 * MIB):.2f} GiB"


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE | re.ASCII)


def parse_bytes(text: str) -> int:
    """A size as people write it, in bytes: 4G, 512 MiB, 1.5g, 4096; K, M, G and T are powers of 1024.

    Raises `UsageError`.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None or len(text) > 32:
        raise UsageError(f"{show(text)} is no size in bytes; write it as 4G, 512M or 4096")
    number, unit = found.groups()
    return int(float(number) * (1 << 10 * " KMGT".index(unit.upper() or " ")))


def available_memory(proc: Path = Path("/proc"), cgroup: Path = ROOT) -> int | None:
    """Bytes that a process may still use: MemAvailable within its control groups' limits; None when unknown."""
    left = [_cgroup_left(folder) for folder in limiting_folders("memory", cgroup, proc / "self" / "cgroup")]
    limits = [n for n in (_mem_available(proc / "meminfo"), *left) if n is not None]
    return min(limits) if limits else None


def _mem_available(meminfo: Path) -> int | None:
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


def _cgroup_left(folder: Path) -> int | None:
    """Bytes that a control group's limit leaves; None without one. Page cache counts as used there but can be dropped,
    so it is added back. `memory.high` slows a group down to a stop long before `memory.max` ends it.
    """
    for limit_names, usage_name in (
        (("memory.max", "memory.high"), "memory.current"),
        (("memory.limit_in_bytes",), "memory.usage_in_bytes"),
    ):
        limits = [n for name in limit_names if (n := _number(folder / name)) is not None]
        used = _number(folder / usage_name)
        if limits and used is not None:
            return max(0, min(limits) - used + _page_cache(folder))
    return None


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # "max" too
        return None


def _page_cache(folder: Path) -> int:
    """Of a control group and those below it, in bytes."""
    try:
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return int(stat.get("file") or stat.get("total_cache") or stat.get("cache") or 0)
    except (OSError, ValueError):
        return 0
