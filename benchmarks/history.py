"""The last result of the same kind of machine, and what became less than in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_MACHINE = ("cpu", "cores", "usable", "flags")
Rows = list[dict[str, Any]]


def last_result(folder: Path, name: str, machine: dict[str, Any]) -> dict[str, Any] | None:
    """The newest result NAME-*.json in a folder of a machine with this processor, cores and instruction sets."""
    same = []
    for path in sorted(folder.glob(f"{name}-*.json")):
        try:
            tree = json.loads(path.read_text())
            there = tree["machine"]
            if all(there.get(fact) == machine.get(fact) for fact in _MACHINE):
                same.append((tree["date"], tree))
        except (ValueError, KeyError, TypeError):
            continue  # not one of these results
    return max(same, key=lambda pair: pair[0])[1] if same else None


def compare(last: dict[str, Any] | None, rows: Rows, threshold: float) -> tuple[list[str], bool]:
    """What fell and what rose by more than a share, in words, and whether something fell.

    The gain over the peer is compared where both results have it, else the share of the read bandwidth, else the figure
    itself: the first two hold on a machine whose speed is not the same every day.
    """
    if last is None:
        return ["No result of such a machine to compare with."], False
    before = {(row["name"], f["unit"], row["threads"]): f for row in last["rows"] for f in row["figures"]}
    words, lost, seen = [], False, 0
    for row in rows:
        for figure in row["figures"]:
            old = before.get((row["name"], figure["unit"], row["threads"]))
            pair = _comparable(old, figure) if old is not None else None
            if pair is None:
                continue
            seen += 1
            what, was, now = pair
            change = now / was - 1
            if abs(change) > threshold:
                lost = lost or change < 0
                direction = "less" if change < 0 else "more"
                words.append(
                    f"- {row['name']}, {figure['unit']}: {what} {now:.2f}, was {was:.2f}: {abs(change):.0%} {direction}"
                )
    head = f"Compared with the result of {last['date']}: {seen} figures, {len(words)} changed by more than"
    return [f"{head} {threshold:.0%}.", *words], lost


def _comparable(old: dict[str, Any], new: dict[str, Any]) -> tuple[str, float, float] | None:
    """What both have, in words, and its values, of which more is better."""
    for key, words in (("ratio", "gain over the peer"), ("share_of_bandwidth", "share of the bandwidth")):
        if old.get(key) and new.get(key):
            return words, float(old[key]), float(new[key])
    if not old["ours"] or not new["ours"]:
        return None
    was, now = (sorted(f["ours"])[len(f["ours"]) // 2] for f in (old, new))
    return ("speed", was, now) if new["unit"] == "tokens/s" else ("speed", 1 / was, 1 / now)
