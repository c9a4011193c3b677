"""Levels 3 and 4: what two servers, or two reports, said to the same requests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from zinc_rt.certify.answers import ProbeAnswer, first_difference
from zinc_rt.certify.ladder import LevelResult
from zinc_rt.certify.workload import ProbeRequest
from zinc_rt.errors import UsageError
from zinc_rt.utils.checks import show

FORMAT: Final = "zinc-certify/1"
_LARGEST: Final = 64 << 20
_token: Final = msgspec.json.Decoder(tuple[Any, Any, list[tuple[Any, Any]]])
"""Of a log-probability in `ProbeAnswer`."""


class _ServerPart(msgspec.Struct):
    """What a report must have of a server, see `Ladder.report`."""

    url: str
    model: str
    machine: str
    endpoint: str
    workload: str
    load: int
    offered: dict[str, str]
    levels: list[dict[str, Any]]
    observations: list[Any]


def compare_servers(one: Mapping[str, Any], other: Mapping[str, Any]) -> LevelResult:
    """What two servers' parts of reports have in common: level 4 where both name their machines and they differ, else
    level 3.

    Raises `UsageError` where they were asked for other things.
    """
    if one["workload"] != other["workload"]:
        raise UsageError("the reports are about other requests; run both with the same options and release")
    apart = bool(one["machine"] and other["machine"] and one["machine"] != other["machine"])
    level = LevelResult("L4" if apart else "L3")
    names = [f"{side['machine'] or side['url']}, {side['model']}" for side in (one, other)]
    state = " and ".join(names)
    for left, right in zip(one["observations"], other["observations"]):
        request = msgspec.convert(left, ProbeRequest)
        first, second = (msgspec.convert(seen, ProbeAnswer) for seen in (left, right))
        level.of(request).note(request.prompt, first_difference(first, second), second, state)
    offered = [side["offered"].get("log-probabilities") == "offered" for side in (one, other)]
    if offered == [False, False]:
        level.why = "texts alone were compared"
    elif False in offered:
        level.why = "one of the two offers no log-probabilities"
    return level


def read_report(path: Path) -> dict[str, Any]:
    """A report as `zinc certify --output` wrote it. Raises `UsageError`."""
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError(f"it is larger than {_LARGEST} bytes")
        report: dict[str, Any] = json.loads(path.read_bytes())
        if report["format"] != FORMAT:
            raise ValueError(f"its format is {show(report['format'])}, it must be {FORMAT}")
        if not report["servers"]:
            raise ValueError("it has no server")
        for server in report["servers"]:
            for seen in msgspec.convert(server, _ServerPart).observations:
                msgspec.convert(seen, ProbeRequest)
                for token in msgspec.convert(seen, ProbeAnswer).logprobs:
                    _token.decode(token)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{path} is no report of zinc certify: {type(error).__name__} {str(error)[:100]}") from None
    return report
