"""The report: figures with their spread, as JSON and as a Markdown table."""

from __future__ import annotations

import datetime
import json
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rows import Goal, Row


def middle(values: Sequence[float]) -> float | None:
    """The median; None without a value."""
    return statistics.median(values) if values else None


@dataclass
class Figure:
    """One unit of a row over the rounds. bandwidth in GB/s; bytes: read per token, None where that is no measure."""

    unit: str
    ours: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)
    bandwidth: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    peer_shares: list[float] = field(default_factory=list)
    bytes: float | None = None

    def add(self, ours: float | None, peer: float | None, n_bytes: float | None, bandwidth: float | None) -> None:
        """Add a round. Its share uses its own bandwidth, which drifts on a shared machine."""
        self.bytes = n_bytes
        for value, values, shares in ((ours, self.ours, self.shares), (peer, self.peer, self.peer_shares)):
            if value is not None:
                values.append(value)
                if n_bytes is not None and bandwidth is not None:
                    shares.append(n_bytes * value / (bandwidth * 1e9))
        if bandwidth is not None:
            self.bandwidth.append(bandwidth)

    @property
    def ratio(self) -> float | None:
        """The gain over the peer: above 1 is better, in any unit."""
        ours, peer = middle(self.ours), middle(self.peer)
        if ours is None or peer is None:
            return None
        return ours / peer if self.unit == "tokens/s" else peer / ours

    def reaches(self, goal: Goal) -> bool | None:
        """Whether all that the goal asks is reached; None when something of it was not measured."""
        ours = middle(self.ours)
        checks = [
            (goal.ratio, self.ratio, 1),
            (goal.share, middle(self.shares), 1),
            (goal.limit, ours, -1),
        ]
        asked = [(wanted, seen, sign) for wanted, seen, sign in checks if wanted is not None]
        if not asked or any(seen is None for _, seen, _ in asked):
            return None
        return all(sign * seen >= sign * wanted for wanted, seen, sign in asked if seen is not None)


@dataclass
class Result:
    """A measured row. elsewhere: share of the processor that other work took, in the worst round that counts."""

    row: Row
    threads: int
    figures: dict[str, Figure] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    elsewhere: float | None = None

    def goals(self, figure: Figure) -> tuple[Goal, Goal]:
        """must and aim of a figure."""
        if figure.unit == "MB":
            return self.row.must_memory, self.row.aim_memory
        return self.row.must, self.row.aim

    def line(self) -> str:
        """The result in short."""
        parts = []
        for figure in self.figures.values():
            values = [("ours", middle(figure.ours)), ("peer", middle(figure.peer)), ("GB/s", middle(figure.bandwidth))]
            parts.append(figure.unit + " " + ", ".join(f"{name} {x:.2f}" for name, x in values if x is not None))
        return "; ".join([*parts, *self.notes])

    def as_dict(self) -> dict[str, Any]:
        """For JSON: all samples."""
        row = self.row
        facts: dict[str, Any] = {"name": row.name, "model": row.model, "kind": row.kind.value, "n": row.n}
        facts |= {"depth": row.depth, "streams": row.streams, "threads": self.threads, "level": row.level}
        figures = []
        for figure in self.figures.values():
            must, aim = self.goals(figure)
            figures.append(
                {
                    "unit": figure.unit,
                    "ours": _rounded(figure.ours),
                    "peer": _rounded(figure.peer),
                    "read_bandwidth_gb_s": _rounded(figure.bandwidth),
                    "bytes_per_token": figure.bytes,
                    "share_of_bandwidth": middle(figure.shares),
                    "peer_share_of_bandwidth": middle(figure.peer_shares),
                    "ratio": figure.ratio,
                    "must": str(must),
                    "must_reached": figure.reaches(must),
                    "aim": str(aim),
                    "aim_reached": figure.reaches(aim),
                }
            )
        elsewhere = None if self.elsewhere is None else round(self.elsewhere, 3)
        return facts | {"elsewhere": elsewhere, "notes": self.notes, "figures": figures}


@dataclass
class Run:
    """All results of one run of the command."""

    machine: dict[str, Any]
    versions: dict[str, Any]
    note: str = ""
    host: dict[str, dict[str, float]] = field(default_factory=dict)  # before and after: see `machine.host_state`
    comparison: list[str] = field(default_factory=list)  # with the last result, in words
    results: list[Result] = field(default_factory=list)
    date: str = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"))

    def write(self, folder: Path, name: str) -> None:
        """NAME-DATE-CPU.json and .md."""
        folder.mkdir(parents=True, exist_ok=True)
        cpu = re.sub(r"[^a-z0-9]+", "-", self.machine["cpu"].lower()).strip("-")
        stem = folder / f"{name}-{self.date}-{cpu}"
        tree = {"date": self.date, "machine": self.machine, "versions": self.versions, "note": self.note}
        tree |= {"host": self.host, "comparison": self.comparison}
        rows = [result.as_dict() for result in self.results]
        stem.with_suffix(".json").write_text(json.dumps(tree | {"rows": rows}, indent=1) + "\n")
        stem.with_suffix(".md").write_text(self.markdown() + "\n")

    def markdown(self) -> str:
        """The table, with what it was measured on in front."""
        m = self.machine
        head = [
            f"# Native CPU tier, {self.date}",
            "",
            f"- {m['cpu']}, {m['cores']} cores ({m['usable']} usable), {m['memory_gb']} GB; {' '.join(m['flags'])}",
            "- " + ", ".join(f"{name} {version}" for name, version in self.versions.items() if version),
        ]
        head += [f"- {self.note}"] if self.note else []
        head += [
            f"- {when}: memory reads at {seen['read_bandwidth_gb_s']:g} GB/s, others use {seen['others']:.0%}"
            for when, seen in self.host.items()
        ]
        titles = [
            "row",
            "unit",
            "ours",
            "llama.cpp",
            "ratio",
            "read GB/s",
            "our share",
            "its share",
            "must",
            "aim",
            "others",
        ]
        lines = [_cells(titles), "|---|---|" + "---:|" * 6 + "---|---|---:|"]
        notes = []
        for result in self.results:
            notes += [f"- {result.row.name}: {note}" for note in result.notes]
            for figure in result.figures.values():
                must, aim = result.goals(figure)
                lines.append(
                    _cells(
                        [
                            result.row.name,
                            figure.unit,
                            _spread(figure.ours),
                            _spread(figure.peer),
                            "" if figure.ratio is None else f"{figure.ratio:.2f} x",
                            _number(middle(figure.bandwidth)),
                            _percent(middle(figure.shares)),
                            _percent(middle(figure.peer_shares)),
                            _verdict(must, figure.reaches(must)),
                            _verdict(aim, figure.reaches(aim)),
                            _percent(result.elsewhere),
                        ]
                    )
                )
        return "\n".join(
            [*head, "", *lines, *(["", *notes] if notes else []), *(["", *self.comparison] if self.comparison else [])]
        )


def _cells(values: Sequence[str]) -> str:
    return "| " + " | ".join(values) + " |"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 1000 else f"{value:.0f}"


def _spread(values: Sequence[float]) -> str:
    """Median with the range."""
    if not values:
        return ""
    if len(values) == 1:
        return _number(values[0])
    return f"{_number(middle(values))} ({_number(min(values))}-{_number(max(values))})"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _verdict(goal: Goal, reached: bool | None) -> str:
    mark = {True: " ✓", False: " ✗", None: ""}[reached]
    return f"{goal}{mark}"


def _rounded(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.5g}") for value in values]
