"""A report as a page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any, Final

_STYLE: Final = """body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;
background:#fff}table{border-collapse:collapse;width:100%;margin:.5rem 0 1.5rem}td,th{border:1px solid #ccc;
padding:.3rem .6rem;text-align:left;vertical-align:top;overflow-wrap:anywhere}.holds{color:#176b2c}.fails{color:#a3161b;
font-weight:bold}code{font-size:.85em}@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}
td,th{border-color:#555}.holds{color:#6fcf85}.fails{color:#ff8a80}}"""


def page_of(report: Mapping[str, Any]) -> str:
    """The page: a table of levels for each server, what was compared, and the answers."""
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        "<title>The same bytes: a certificate</title>",
        f"<style>{_STYLE}</style><h1>Does it give the same bytes?</h1>",
        f"<p>{escape(report['tool'])}, {escape(report['created'])}.",
        "An answer counts as equal where every byte of its text and every digit of its log-probabilities is.</p>",
    ]
    for server in report["servers"]:
        name = server["machine"] or server["url"]
        parts.append(f"<h2>{escape(server['model'])} <small>{escape(name)}</small></h2>")
        parts.append(_levels(server["levels"]))
        offers = ", ".join(f"{key} {value}" for key, value in server["offered"].items())
        parts.append(
            f"<p>{escape(server['url'] + server['endpoint'])}; {server['load']} at once; {escape(offers)}.</p>"
        )
        parts.append(_answers(server["observations"]))
    if report["levels"]:
        parts += ["<h2>Between them</h2>", _levels(report["levels"])]
    return "\n".join(parts) + "\n</html>\n"


def _levels(levels: Iterable[Mapping[str, Any]]) -> str:
    head = ("level", "verdict", "greedy", "sampled", "seen")
    rows = []
    for level in levels:
        verdict = level["verdict"]
        rows.append(
            [
                escape(f"{level['level']} {level['name']}"),
                f'<span class="{verdict.replace(" ", "-")}">{verdict}</span>',
                *(escape(counts(level.get(kind))) for kind in ("greedy", "sampled")),
                escape(remark(level)),
            ]
        )
    return _table(head, rows)


def counts(kind: Mapping[str, Any] | None) -> str:
    """How many answers were equal, in words."""
    if kind is None:
        return "-"
    total = kind["equal"] + kind["different"] + kind["refused"]
    return f"{kind['equal']} of {total} equal"


def remark(level: Mapping[str, Any]) -> str:
    """What is to be said of a level: the first difference, or what limits what was seen."""
    first = [level[kind]["first"] for kind in ("greedy", "sampled") if level.get(kind, {}).get("first")]
    return "; ".join([*first, *([level["why"]] if level.get("why") else [])])


def _answers(seen: Iterable[Mapping[str, Any]]) -> str:
    rows = [
        [escape(one["prompt"]), f"{one['temperature']:g}", f"<code>{escape(one['text'])}</code>", len(one["logprobs"])]
        for one in seen
    ]
    table = _table(("request", "temperature", "answer", "log-probabilities"), rows)
    return f"<details><summary>The answers that all others were compared with</summary>{table}</details>"


def _table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    cells = ["".join(f"<th>{name}" for name in head), *("".join(f"<td>{cell}" for cell in row) for row in rows)]
    return f"<table>{''.join(f'<tr>{row}' for row in cells)}</table>"
