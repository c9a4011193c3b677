"""`zinc bench --predict`: the predicted speed of a model on a card that this machine does not have."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zinc_rt.cli.files import model_file
from zinc_rt.cli.terminal import one_line, say
from zinc_rt.errors import UsageError
from zinc_rt.mem.plan import format_bytes

if TYPE_CHECKING:
    from zinc_rt.cli.engine_options import EngineOptions
    from zinc_rt.perf_model.forecast import CardForecast


def predicted(
    gpu: str,
    engine: EngineOptions,
    prompts: Sequence[int],
    depths: Sequence[int],
    n_batch: int | None,
    output: str,
    *,
    phases: bool = False,
) -> str:
    """The forecasts of these tests as Markdown, JSON or CSV. phases: the first with tables of where the time goes.
    Raises what `forecast` raises, and `UsageError`.
    """
    from zinc_rt.backends.amdgpu.emulated import gpu_model
    from zinc_rt.engine.options import Options
    from zinc_rt.llm.load import built_in_model
    from zinc_rt.models.cache_format import parse_cache_format
    from zinc_rt.perf_model.forecast import forecast
    from zinc_rt.perf_model.published import PUBLISHED, share_forecast

    engine.check_unused("--predict")
    path = model_file(engine.model, engine.hub) or built_in_model()
    depths = [max(1, depth) for depth in depths]
    try:
        gpu_model(None if gpu in PUBLISHED else gpu)
    except UsageError as error:
        raise UsageError(f"{error}; predicted from their bandwidth alone: {', '.join(PUBLISHED)}") from None
    if gpu in PUBLISHED:
        kv = Options.kv if engine.kv is None else parse_cache_format(engine.kv)
        found = share_forecast(path, PUBLISHED[gpu], depths, kv=kv)
    else:
        found = forecast(
            path,
            gpu,
            prompts,
            depths,
            kv=engine.kv,
            n_batch=n_batch,
            cache_dir=engine.cache_dir,
            notify=lambda line: say(f"zinc: {one_line(line)}", style="dim"),
        )
    if output == "json":
        return json.dumps({"model": path.name, **found.as_dict()}, indent=1) + "\n"
    return _csv(path.name, found) if output == "csv" else _markdown(path.name, found, phases)


def _markdown(name: str, found: CardForecast, phases: bool) -> str:
    from amdgpu_emu import account

    lines = [
        f"{name} on {found.card}, predicted",
        "",
        "| test   | tokens | depth |        tokens/s | likely |       ms likely | barriers | GB moved |",
        "|--------|-------:|------:|----------------:|-------:|----------------:|---------:|---------:|",
    ]
    for test in found.tests:
        speed = test.speed
        span = f"{speed.low:.0f}-{speed.high:.0f}"
        lines.append(
            f"| {test.test:6} | {test.tokens:6} | {test.depth:5} | {span:>15} | {speed.likely:6.0f} |"
            f" {test.seconds.likely * 1e3:15.3f} | {test.barriers:8} | {test.bytes / 1e9:8.3f} |"
        )
    for test in found.tests:
        if (one := test.resident_speed) is not None:
            span = f"{one.low:.0f}-{one.high:.0f} tokens/s, likely {one.likely:.0f}"
            lines += ["", f"As one resident program (--resident), text at depth {test.depth}: {span}."]
    verdict = "fits" if found.fits else "does not fit"
    lines += [
        "",
        f"It {verdict}: {format_bytes(found.plan.total)} ({found.plan}) of {format_bytes(found.memory)},"
        f" {found.plan.total / found.memory:.0%}; a tenth stays free.",
    ]
    if found.note:
        lines += ["", found.note]
    for test in found.tests if phases and not found.note else ():
        what = f"{test.test} of {test.tokens}" if test.depth == 0 else f"{test.test} behind {test.depth}"
        lines += ["", f"{what}: {test.seconds.likely * 1e6:.0f} us, likely, of which", ""]
        lines += account.lines(test.phases, test.barriers, test.full_barriers, test.steps)
    return "\n".join(lines) + "\n"


def _csv(name: str, found: CardForecast) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["model", "card", "fits", "bytes", "test", "tokens", "depth", "low", "likely", "high", "resident"])
    for test in found.tests:
        speed = test.speed
        about = (name, found.card, found.fits, found.plan.total)
        resident = "" if test.resident_speed is None else test.resident_speed.likely
        writer.writerow([*about, test.test, test.tokens, test.depth, speed.low, speed.likely, speed.high, resident])
    return out.getvalue()
