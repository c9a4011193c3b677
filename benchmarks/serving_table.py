"""The table of the servers' benchmark: its loads with their goals, and the result files."""

from __future__ import annotations

import datetime
import json
import math
import re
import statistics
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import serving_loads as loads
import serving_tenants as competing
from serving_loads import LONG, SHORT, Figures, Site
from serving_servers import Sizes


@dataclass(frozen=True)
class Aim:
    """What a figure must reach. most: it is at most that, otherwise at least; ratio: of the peer's figure."""

    must: float
    aim: float | None = None
    most: bool = False
    ratio: bool = False

    def reached(self, value: float | None) -> bool | None:
        """Whether a value satisfies `must`; None without a value."""
        if value is None or math.isnan(value):
            return None
        return value <= self.must if self.most else value >= self.must

    def __str__(self) -> str:
        sign, unit = "≤ " if self.most else "≥ ", " x" if self.ratio else ""
        return f"{sign}{self.must:g}{unit}" + (f", aim {self.aim:g}{unit}" if self.aim is not None else "")


@dataclass(frozen=True)
class Load:
    """One load. sizes: of the servers; goals: by figure; usual: it is part of a run that names none."""

    name: str
    run: Callable[[Site], Awaitable[Figures]]
    sizes: Sizes = SHORT
    goals: dict[str, Aim] = field(default_factory=dict)
    usual: bool = True


LOADS = (
    Load("greedy", loads.greedy, goals={"tokens/s": Aim(2.5, 3.2, ratio=True)}),
    Load("sampled", loads.sampled, goals={"of greedy": Aim(0.9, 0.97)}),
    Load("single", loads.single),
    Load(
        "streams",
        loads.streams,
        goals={"HTTP, us a token": Aim(60, most=True), "engine, us a token": Aim(120, most=True)},
        usual=False,
    ),
    Load("schema", loads.schema, goals={"share": Aim(0.85, 0.93)}),
    Load("idle", loads.idle, goals={"share of the speed": Aim(0.97), "memory, MB": Aim(150, most=True)}),
    Load("tenants", competing.tenants, goals={"engine time, share": Aim(0.47, 0.49)}),
    Load("quiet", competing.quiet, goals={"steps more": Aim(2, most=True)}),
    Load("overload", competing.overload, goals={"refusal p99, ms": Aim(5, most=True)}),
    Load("goodput", competing.goodput, goals={"80 % of it, share in time": Aim(0.99)}),
    Load("gap", loads.gap, LONG, {"worst gap, ms": Aim(120, most=True)}),
    Load("prefix", loads.prefix, LONG, {"share": Aim(0.1, 0.05, most=True)}),
    Load(
        "soak", competing.soak, goals={"different": Aim(0, most=True), "sums of pages": Aim(1, most=True)}, usual=False
    ),
)
DERIVED = {
    ("bare", "HTTP of the same work"): Aim(0.88, 0.95),
    ("bare", "HTTP of decode, while all decode"): Aim(0.88, 0.95),
    ("bare", "single: over the bare step"): Aim(0.03, 0.01, most=True),
}
"""Goals of figures that come of several loads; see `derive`."""


@dataclass
class Table:
    """All figures of a run: of each load, side and name one value a round."""

    machine: dict[str, Any]
    versions: dict[str, Any]
    facts: dict[str, Any]
    values: dict[tuple[str, str], dict[str, list[float]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    bandwidth: list[float] = field(default_factory=list)
    date: str = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"))

    def add(self, load: str, side: str, figures: Figures) -> None:
        """One round's figures."""
        for name, value in figures.items():
            self.values.setdefault((load, name), {}).setdefault(side, []).append(value)

    def note(self, text: str) -> None:
        """Once in the result file."""
        if text not in self.notes:
            self.notes.append(text)

    def goal(self, load: str, name: str) -> Aim | None:
        """What a figure must reach, if anything."""
        return DERIVED.get((load, name)) or next((x.goals.get(name) for x in LOADS if x.name == load), None)

    def middle(self, load: str, name: str, side: str) -> float | None:
        """The median of the rounds."""
        values = self.values.get((load, name), {}).get(side)
        return statistics.median(values) if values else None

    def reached(self, load: str, name: str) -> bool | None:
        """Whether our figure reaches its goal; None where there is none, or no figure."""
        goal, ours, peer = self.goal(load, name), self.middle(load, name, "ours"), self.middle(load, name, "peer")
        if goal is None or ours is None:
            return None
        if goal.ratio:
            return goal.reached(ours / peer) if peer else None
        return goal.reached(ours)

    def write(self, folder: Path, name: str) -> None:
        """NAME-DATE-CPU.json and .md."""
        folder.mkdir(parents=True, exist_ok=True)
        cpu = re.sub(r"[^a-z0-9]+", "-", self.machine["cpu"].lower()).strip("-")
        stem = folder / f"{name}-{self.date}-{cpu}"
        rows = [
            {
                "load": load,
                "figure": figure,
                **{side: [float(f"{v:.5g}") for v in values] for side, values in sides.items()},
                "goal": str(self.goal(load, figure) or ""),
                "reached": self.reached(load, figure),
            }
            for (load, figure), sides in self.values.items()
        ]
        tree = {"date": self.date, "machine": self.machine, "versions": self.versions, "run": self.facts}
        tree |= {"read_bandwidth_gb_s": [round(x, 2) for x in self.bandwidth], "notes": self.notes, "rows": rows}
        stem.with_suffix(".json").write_text(json.dumps(tree, indent=1) + "\n")
        stem.with_suffix(".md").write_text(self.markdown() + "\n")

    def markdown(self) -> str:
        """The table, with what it was measured on in front."""
        m = self.machine
        low, high = (min(self.bandwidth), max(self.bandwidth)) if self.bandwidth else (math.nan, math.nan)
        lines = [
            f"# Servers, {self.date}",
            "",
            f"- {m['cpu']}, {m['cores']} cores ({m['usable']} usable), {m['memory_gb']} GB; {' '.join(m['flags'])}",
            "- " + ", ".join(f"{name} {version}" for name, version in self.versions.items() if version),
            f"- read bandwidth {low:.1f} to {high:.1f} GB/s",
            *(f"- {name}: {value}" for name, value in self.facts.items()),
            "",
            "| load | figure | ours | llama-server | ratio | goal |",
            "|---|---|---:|---:|---:|---|",
        ]
        for (load, name), sides in self.values.items():
            ours, peer = self.middle(load, name, "ours"), self.middle(load, name, "peer")
            ratio = f"{ours / peer:.2f} x" if ours is not None and peer else ""
            mark = {True: " ✓", False: " ✗", None: ""}[self.reached(load, name)]
            cells = [load, name, _spread(sides.get("ours")), _spread(sides.get("peer")), ratio]
            lines.append("| " + " | ".join([*cells, f"{self.goal(load, name) or ''}{mark}"]) + " |")
        return "\n".join([*lines, *(["", *(f"- {note}" for note in self.notes)] if self.notes else [])])


def _spread(values: list[float] | None) -> str:
    """Median with the range."""
    if not values:
        return ""
    text = _number(statistics.median(values))
    return text if len(values) == 1 else f"{text} ({_number(min(values))}-{_number(max(values))})"


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 1 else f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
