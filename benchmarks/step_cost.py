"""What a step will cost: the scheduler's least squares beside a table of moving means.

    python benchmarks/step_cost.py

Sixty made machines, each of four terms (a step, a row that decodes, a row of a prompt, a position that a row looks at),
teach both with the same steps. Then both say what twenty other steps would take. The table has the mean milliseconds of
steps without prompts by their rows, with the ones between interpolated, and the mean of a prompt's row by the power of
two of its position, beyond what the texts beside it take. Printed are relative errors.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from zinc_rt.scheduler.cost import CostModel, CostPart

_KEEP = 0.7
"""Weight that the table's last measurement leaves to those before."""
_STALL = 2.0
"""Times the known milliseconds: no more of a measurement is believed."""
Terms = tuple[float, float, float, float]


class Table:
    """Moving means of steps by rows, and of prompts' rows by depth."""

    def __init__(self) -> None:
        self._steps: dict[int, float] = {}
        self._rows: dict[int, float] = {}

    def step_ms(self, parts: list[CostPart]) -> float:
        """Milliseconds that a step is expected to take."""
        texts = sum(part.rows for part in parts if not part.prefill)
        return self._texts_ms(texts) + sum(part.rows * self._row_ms(part.depth) for part in parts if part.prefill)

    def _texts_ms(self, n: int) -> float:
        known = self._steps
        if n in known or not known:
            return known.get(n, 0.0)
        below, above = max((m for m in known if m < n), default=0), min((m for m in known if m > n), default=0)
        if not above or below not in known:
            return known[above or below]
        return known[below] + (known[above] - known[below]) * (n - below) / (above - below)

    def _row_ms(self, depth: int) -> float:
        if not self._rows:
            return 1.0
        return self._rows[min(self._rows, key=lambda bucket: abs(bucket - depth.bit_length()))]

    def learn(self, parts: list[CostPart], ms: float) -> None:
        """A step took `ms` milliseconds."""
        texts = sum(part.rows for part in parts if not part.prefill)
        prompts = [part for part in parts if part.prefill]
        if not prompts:
            _mix(self._steps, texts, ms)
            return
        rows = sum(part.rows for part in prompts)
        _mix(self._rows, prompts[0].depth.bit_length(), max(ms - self._texts_ms(texts), 1e-3) / rows)


def _mix(means: dict[int, float], key: int, ms: float) -> None:
    known = means.get(key)
    means[key] = ms if known is None else known + (1 - _KEEP) * (min(ms, _STALL * known) - known)


def true_ms(terms: Terms, parts: list[CostPart]) -> float:
    """What a step takes on a machine of these terms."""
    rows = sum(terms[2 if part.prefill else 1] * part.rows for part in parts)
    return terms[0] + rows + terms[3] * sum(part.positions for part in parts) / 1000


def a_step(rng: random.Random) -> list[CostPart]:
    """Texts, a part of a prompt, or both."""
    texts = [CostPart(False, 1, rng.randrange(600)) for _ in range(rng.randrange(17))]
    if texts and rng.random() < 0.5:
        return texts
    rows = rng.choice([1, 5, 16, 32, 48])
    return [*texts, CostPart(True, rows, rng.randrange(rows - 1, 2000))]


def exact(rng: random.Random) -> float:
    """Each step takes what it should."""
    return 1.0


def shaking(rng: random.Random) -> float:
    """Some percent more or less, and every tenth step is held up."""
    return rng.uniform(0.95, 1.05) * (rng.uniform(2, 6) if rng.random() < 0.1 else 1)


def errors(kind: type[CostModel | Table], n_steps: int, noise: Callable[[random.Random], float]) -> list[float]:
    """Relative errors after so many steps, smallest first."""
    found, draw = [], random.Random(5)
    for seed in range(60):
        terms = draw.uniform(1, 50), draw.uniform(0.05, 3), draw.uniform(0.05, 3), draw.uniform(0.05, 3)
        cost, rng = kind(), random.Random(seed)
        for _ in range(n_steps):
            parts = a_step(rng)
            cost.learn(parts, true_ms(terms, parts) * noise(rng))
        steps = [a_step(rng) for _ in range(20)]
        found += [abs(cost.step_ms(parts) / true_ms(terms, parts) - 1) for parts in steps]
    return sorted(found)


def main() -> None:
    """Print a line a case."""
    print(f"{'steps':<14}{'kind':<12}{'median':>8}{'95 %':>8}{'worst':>8}")
    for noise in (exact, shaking):
        for n_steps in (40, 300):
            for kind in (CostModel, Table):
                found = errors(kind, n_steps, noise)
                worst = [found[len(found) // 2], found[int(0.95 * len(found))], found[-1]]
                name = "least squares" if kind is CostModel else "table"
                print(f"{n_steps} {noise.__name__:<10}{name:<14}" + "".join(f"{error:>8.3f}" for error in worst))


if __name__ == "__main__":
    main()
