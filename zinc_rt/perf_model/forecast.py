"""Forecasts: the speed and the memory of a model on a card, predicted on the emulated one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zinc_rt.backends.devices import Device, DeviceChoice
from zinc_rt.engine.engine import Engine, Options, SequenceChunk
from zinc_rt.engine.options import LARGE_BATCH
from zinc_rt.gguf import GGUFFile
from zinc_rt.kernels.gpu.catalogue import DECODE
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.mem.plan import MemoryPlan
from zinc_rt.models import define
from zinc_rt.models.cache_format import parse_cache_format
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.request import SamplingRequest
from zinc_rt.sampling.sampler import Sampler

if TYPE_CHECKING:
    from amdgpu_emu.account import PhaseKind
    from amdgpu_emu.constants import Interval
    from zinc_rt.backends.amdgpu.emulated import Prediction
    from zinc_rt.utils.linux import Linux


@dataclass(frozen=True)
class Forecast:
    """The prediction of one test. tokens: computed; depth: tokens before them; seconds: of all steps; steps,
    dispatches, barriers: in all; full_barriers: of these, such that drop the L2; bytes: distinct ones that dispatches
    move, in all; phases: where the time goes; resident: seconds as one resident program, None where a step cannot be
    one.
    """

    test: str
    tokens: int
    depth: int
    seconds: Interval
    steps: int
    dispatches: int
    barriers: int
    full_barriers: int
    bytes: int
    phases: Sequence[PhaseKind] = ()
    resident: Interval | None = None

    @property
    def speed(self) -> Interval:
        """Tokens per second."""
        return self._rate(self.seconds)

    @property
    def resident_speed(self) -> Interval | None:
        """Tokens per second as one resident program."""
        return None if self.resident is None else self._rate(self.resident)

    def _rate(self, s: Interval) -> Interval:
        return type(s)(self.tokens / s.high, self.tokens / s.likely, self.tokens / s.low, "tokens/s")


@dataclass(frozen=True)
class CardForecast:
    """The predicted memory and speed of a model on a card. plan: of its memory; memory: bytes of the card, of which a
    tenth stays free; note: what the prediction rests on, empty for the model of the card.
    """

    card: str
    tests: Sequence[Forecast]
    plan: MemoryPlan
    memory: int
    note: str = ""

    @property
    def fits(self) -> bool:
        """Whether weights, caches and all else fit beside what stays free."""
        return self.plan.available is None or self.plan.total <= self.plan.available

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON: sizes in bytes, times in seconds, speeds in tokens a second."""
        tests = [
            {
                **asdict(test),
                "seconds": _limits(test.seconds),
                "resident": _limits(test.resident),
                "speed": _limits(test.speed),
                "resident_speed": _limits(test.resident_speed),
            }
            for test in self.tests
        ]
        for test in tests:
            test["phases"] = [{**kind, "parts": kind["parts"]._asdict()} for kind in test["phases"]]
        return {
            "card": self.card,
            "note": self.note,
            "memory": self.memory,
            "fits": self.fits,
            "plan": self.plan.as_dict(),
            "tests": tests,
        }


def _limits(found: Interval | None) -> dict[str, float] | None:
    return None if found is None else {name: getattr(found, name) for name in ("low", "likely", "high")}


def forecast(
    path: Path,
    gpu: str,
    prompts: Sequence[int],
    depths: Sequence[int],
    *,
    kv: str | None = None,
    n_ctx: int | None = None,
    n_batch: int | None = None,
    cache_dir: Path | None = None,
    notify: Callable[[str], None] | None = None,
) -> CardForecast:
    """Predict prompts of these lengths, and a token behind texts of these lengths, on a card. No weights are read.

    Args:
        path: the model's file.
        gpu: the card's name, one of `zinc emu list`.
        prompts, depths: in tokens.
        kv: format of the KV cache.
        n_ctx: tokens that the cache has room for; None: what the tests need.
        n_batch: rows of a step for prompts; None: what a GPU gets.
        cache_dir: where kernels and counts are kept.
        notify: gets lines worth showing.

    Raises:
        UsageError: no card of this name can be emulated.
        BackendError: the GPU kernels cannot run the model.
        What opening a file raises.
    """
    room = [n_ctx or 1, *(n + 1 for n in prompts), *(depth + 2 for depth in depths)]
    options = Options(
        device=Device.emu,
        gpu=gpu,
        n_ctx=max(room),
        n_batch=LARGE_BATCH if n_batch is None else n_batch,
        n_logits=1,
        check_memory=False,
        kv=Options.kv if kv is None else parse_cache_format(kv),
        cache_dir=cache_dir,
    )
    with GGUFFile.open(path) as file, _Engine(options, notify=notify) as engine:
        definition = define(file)
        plan = engine.load(file, definition)
        wanted = [("prompt", n, 0) for n in prompts] + [("text", 1, depth) for depth in depths]
        tests = [_test(engine, definition.info.n_vocab, *test) for test in wanted]
        return CardForecast(engine.gpu.name, tests, plan, engine.gpu.memory)


class _Engine(Engine):
    """An engine on a card without weights."""

    def _open_backend(self, device: DeviceChoice, linux: Linux | None) -> None:
        from zinc_rt.backends.amdgpu.emulated import gpu_model
        from zinc_rt.perf_model.backend import ForecastBackend

        cache = CompileCache(self.options.cache_dir or default_cache_dir(), notify=self._notify)
        self.device, self.gpu = device.device, gpu_model(self.options.gpu)
        self._backend = ForecastBackend(self.gpu, cache=cache, notify=self._notify)


def _test(engine: _Engine, n_vocab: int, name: str, n: int, depth: int) -> Forecast:
    """The steps of `n` tokens behind `depth` others."""
    from amdgpu_emu.account import account

    seq_id = engine.open_sequence()
    greedy = Sampler(SamplingParams(temperature=0.0, seed=0), n_vocab)
    try:
        _run(engine, seq_id, 0, depth, None)
        engine.start_profile()
        _run(engine, seq_id, depth, n, SamplingRequest(greedy, [0]))
        found: Prediction = engine.finish_profile()  # type: ignore[assignment]
    finally:
        engine.close_sequence(seq_id)
    # What was brought before it is read counts once, where it is read.
    work = [record.work for record in found.records if record.name != DECODE["ahead"].spec.function.name]
    return Forecast(
        name, n, depth, found.total, found.steps, len(found.records), found.barriers, found.full_barriers,
        sum(w.unique_read + w.unique_written for w in work), account(found.records, engine.gpu),
        found.resident if name == "text" else None,
    )  # fmt: skip


def _run(engine: Engine, seq_id: int, start: int, n: int, request: SamplingRequest | None) -> None:
    """Steps of `n` rows from position `start` on; the last one ends with a token, if one is asked for."""
    assert engine.sizes is not None
    n_batch = engine.sizes.n_rows
    for at in range(start, start + n, n_batch):
        count = min(n_batch, start + n - at)
        if request is not None and at + count == start + n:
            engine.step([SequenceChunk(seq_id, at, [0] * count, (count - 1,))], [request])
        else:
            engine.step([SequenceChunk(seq_id, at, [0] * count)])
