"""Levels 3 and 4: what two servers, or two reports, said to the same requests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from zinc_rt.certify.answers import ProbeAnswer, first_difference
from zinc_rt.certify.ladder import LevelResult
from zinc_rt.certify.workload import ProbeRequest
from zinc_rt.errors import UsageError
from zinc_rt.utils.checks import show

FORMAT: Final = "zinc-certify/1"
_LARGEST: Final = 64 << 20


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
        request, (first, second) = _request(left), (_answer(left), _answer(right))
        level.of(request).note(request.prompt, first_difference(first, second), second, state)
    offered = [side["offered"].get("log-probabilities") == "offered" for side in (one, other)]
    if offered == [False, False]:
        level.why = "texts alone were compared"
    elif False in offered:
        level.why = "one of the two offers no log-probabilities"
    return level


def _request(seen: Mapping[str, Any]) -> ProbeRequest:
    return ProbeRequest(seen["prompt"], seen["temperature"], seen["seed"], seen["max_tokens"])


def _answer(seen: Mapping[str, Any]) -> ProbeAnswer:
    return ProbeAnswer(
        seen["id"], seen["text"], seen["finish"], tuple(seen["logprobs"]), seen["cached"], seen["reasoning"]
    )


def read_report(path: Path) -> dict[str, Any]:
    """A report as `zinc certify --output` wrote it. Raises `UsageError`."""
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError(f"it is larger than {_LARGEST} bytes")
        report: dict[str, Any] = json.loads(path.read_bytes())
        if report["format"] != FORMAT:
            raise ValueError(f"its format is {show(report['format'])}, it must be {FORMAT}")
        for server in report["servers"]:
            for seen in server["observations"]:
                _ = _request(seen), _answer(seen)
            (
                server["workload"],
                server["offered"]["log-probabilities"],
                server["machine"],
                server["url"],
                server["model"],
            )
        if not report["servers"]:
            raise ValueError("it has no server")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path} is no report of zinc certify: {type(error).__name__} {str(error)[:100]}") from None
    return report
