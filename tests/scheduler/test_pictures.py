"""Pictures in the scheduler: towers run in slices between steps, prompts wait for rows, and pictures stay whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from tests.engine.test_pictures import made, pictures_of, reading, rows_of, text_of
from tests.helpers import random_tokens
from tests.models.families.build import N_VOCAB, Made
from zinc_rt.engine.engine import Engine
from zinc_rt.mem.errors import MemoryPlanError
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.scheduler.engine_core import EngineCore
from zinc_rt.scheduler.messages import Failed, Finished, Submit, Token
from zinc_rt.scheduler.options import CoreOptions, CoreVocabulary
from zinc_rt.vision.projector import Projector
from zinc_rt.vision.shown import PixelTile, ShownPicture

SLICES = 3
GREEDY = SamplingParams(temperature=0.0, max_tokens=6)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pictures")


class SlicedWork:
    """A tower's work that takes a few slices."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows, self._left = rows, SLICES

    def advance(self, seconds: float) -> bool:
        assert 0 < seconds <= 10
        self._left -= 1
        return self._left == 0


class FakeProjector:
    """Gives the made-up rows of a picture, which the first byte of its pixels names."""

    def __init__(self, case: Made) -> None:
        self.case, self.started = case, 0

    def start(self, tiles: Sequence[np.ndarray]) -> SlicedWork:
        self.started += 1
        picture = pictures_of(self.case.case.architecture)[int(tiles[0].flat[0])]
        return SlicedWork(rows_of(self.case, picture))


def core_of(engine: Engine, projector: FakeProjector | None) -> EngineCore:
    options = CoreOptions(max_step_ms=1e4, max_prefill_ms=1e4)
    return EngineCore(engine, CoreVocabulary(N_VOCAB), options, projector=cast("Projector", projector))


def submit(name: str, request_id: str, prompt: Sequence[int] | None = None, **more: Any) -> Submit:
    shown = tuple(
        ShownPicture(picture, (PixelTile(1, 1, bytes([at] * 3)),)) for at, picture in enumerate(pictures_of(name))
    )
    return Submit(request_id, tuple(text_of(name) if prompt is None else prompt), GREEDY, 0, pictures=shown, **more)


def tokens_of(core: EngineCore, *requests: Submit) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {request.id: [] for request in requests}
    for request in requests:
        core.submit(request)
    for event in events(core):
        assert not isinstance(event, Failed), event
        if isinstance(event, Token):
            found[event.id].append(event.token_id)
    return found


def events(core: EngineCore) -> Iterator[Any]:
    while not core.idle:
        yield from core.turn().events
        core.check_integrity()


@pytest.mark.parametrize("name", ["gemma3", "qwen3vl", "qwen35"])
def test_any_batch(name: str, folder: Path) -> None:
    """Steps of a few rows: pictures whose rows see each other stay whole, others are cut anywhere."""
    case = made(folder, name)
    want = None
    for options in ({"n_batch": 32}, {"n_batch": 7}, {"n_batch": 8, "n_slots": 3}, {"n_batch": 8, "kv_tokens": 32}):
        with reading(case, kernels="native", rows=False, **options) as engine:
            projector = FakeProjector(case)
            core = core_of(engine, projector)
            got = tokens_of(core, *(submit(name, str(i)) for i in range(3)))
            want = want or got["0"]
            assert set(map(tuple, got.values())) == {tuple(want)}
            assert len(want) == GREEDY.max_tokens
            assert projector.started == 2  # once a picture


def test_a_picture_twice(folder: Path) -> None:
    case = made(folder, "gemma3")
    one = [token for token in text_of("gemma3") if token < 0][:6]
    prompt = [5, *one, *random_tokens(4, 20, N_VOCAB - 2), *one, 7]
    found = set()
    for n_batch in (64, 8):
        with reading(case, kernels="native", n_batch=n_batch, rows=False) as engine:
            found.add(tuple(tokens_of(core_of(engine, FakeProjector(case)), submit("gemma3", "a", prompt))["a"]))
    assert len(found) == 1


def test_others_go_on_meanwhile(folder: Path) -> None:
    """A text that decodes gets a token each turn while the towers of another request run."""
    case = made(folder, "qwen3vl")
    with reading(case, kernels="native", n_batch=32, n_slots=2, rows=False) as engine:
        core = core_of(engine, FakeProjector(case))
        words = random_tokens(7, 5, N_VOCAB - 2)
        core.submit(Submit("a", tuple(words), replace(GREEDY, max_tokens=20), 0))
        core.turn()
        core.submit(submit("qwen3vl", "b"))
        turns = [core.turn() for _ in range(2 * SLICES)]
        own = [[e.token_id for e in turn.events if isinstance(e, Token) and e.id == "a"] for turn in turns]
        assert [len(each) for each in own] == [1] * len(turns)
        assert not [e for turn in turns[: 2 * SLICES - 1] for e in turn.events if isinstance(e, Token) and e.id == "b"]
        rest = [event for event in events(core) if isinstance(event, Finished)]
        assert {event.id for event in rest} == {"a", "b"}


def test_a_request_that_is_resumed_or_repeated(folder: Path) -> None:
    case = made(folder, "gemma3")
    with reading(case, kernels="native", n_batch=16, n_slots=2, rows=False) as engine:
        projector = FakeProjector(case)
        core = core_of(engine, projector)
        want = tokens_of(core, submit("gemma3", "a"))["a"]
        assert tokens_of(core, submit("gemma3", "b", resume=tuple(want[:3])))["b"] == want[3:]
        long = [*text_of("gemma3"), *random_tokens(9, 12, N_VOCAB - 2)]
        tokens_of(core, submit("gemma3", "c", long))
        assert projector.started == 2
    with reading(case, kernels="native", n_batch=16, n_slots=2, rows=False) as engine:  # another engine goes on
        core = core_of(engine, FakeProjector(case))
        assert tokens_of(core, submit("gemma3", "b", resume=tuple(want[:3])))["b"] == want[3:]


def test_a_picture_without_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its request fails, and the others go on."""
    case = made(folder, "qwen3vl")

    def refuse(*_: object) -> bool:
        raise MemoryPlanError("no room")

    with reading(case, kernels="native", n_batch=32, n_slots=2, rows=False) as engine:
        core = core_of(engine, FakeProjector(case))
        want = tokens_of(core, Submit("a", tuple(random_tokens(7, 5, N_VOCAB - 2)), GREEDY, 0))["a"]
        monkeypatch.setattr(SlicedWork, "advance", refuse)
        core.submit(submit("qwen3vl", "b"))
        core.submit(Submit("c", tuple(random_tokens(7, 5, N_VOCAB - 2)), GREEDY, 0))
        told = list(events(core))
        assert [event.message for event in told if isinstance(event, Failed)] == ["no room"]
        assert [event.token_id for event in told if isinstance(event, Token)] == want


def test_what_is_refused(folder: Path) -> None:
    case = made(folder, "qwen3vl")
    with reading(case, kernels="native", n_batch=32, rows=False) as engine:
        core = core_of(engine, None)
        core.submit(submit("qwen3vl", "a"))
        (failed,) = core.turn().events
        assert isinstance(failed, Failed)
        assert failed.error == "pictures_unavailable"
        core = core_of(engine, FakeProjector(case))
        core.submit(replace(submit("qwen3vl", "b"), pictures=()))
        (failed,) = core.turn().events
        assert "outside the vocabulary" in failed.message
        whole = text_of("qwen3vl")
        for prompt, line in (
            (whole[:5], "the prompt ends within a picture, at row 1 of 6"),
            ([*whole[:4], *whole[5:]], "token 4 of the prompt is row 1 of a picture, out of order"),
            ([*whole[:5], *whole[4:]], "token 5 of the prompt is row 0 of a picture, out of order"),
            ([*whole, -1], "token 22 of the prompt is below 0 and no row of the request's pictures"),
        ):
            core.submit(submit("qwen3vl", "c", prompt))
            (failed,) = core.turn().events
            assert failed.message == line
