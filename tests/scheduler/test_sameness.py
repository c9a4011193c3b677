"""The model in the package: a request's tokens and log-probabilities, whatever runs beside it and however it is cut."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

import zinc_rt
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.scheduler.engine_core import EngineCore
from zinc_rt.scheduler.messages import Event, Failed, Finished, QoS, Submit, Token

TEXT = "Once upon a time there was a little fox who lived by the river with a small grey bird. "
N = 24

Answer = list[tuple[int, float | None, object]]


def requests(model: zinc_rt.Model) -> list[Submit]:
    """Mixed lengths, seeds, limits and parameters; some begin alike."""
    draw = random.Random(5)
    ids = model.tokenize(TEXT * 3)
    made = []
    for i in range(N):
        start = draw.choice([0, 0, 3, 11])
        params = SamplingParams(
            temperature=1.0,
            top_k=draw.choice([0, 40]),
            top_p=draw.choice([0.95, 1.0]),
            min_p=draw.choice([0.0, 0.05]),
            repetition_penalty=draw.choice([1.0, 1.2]),
            max_tokens=draw.choice([1, 7, 20, 33]),
            logprobs=draw.choice([None, 0, 2]),
            ignore_eos=i % 3 == 0,
        )
        prompt = tuple(ids[start : start + draw.randint(1, 45)])
        qos, tenant = draw.choice(list(QoS)), draw.choice("ab")
        made.append(Submit(f"r{i}", prompt, params, draw.getrandbits(64), tenant, qos, salt=tenant.encode()))
    return made


def answers(core: EngineCore, asked: list[Submit], at_once: int = N) -> dict[str, tuple[Answer, str]]:
    """The tokens of each request and why it ended; `at_once`: how many are known to the core at a time."""
    waiting, found, ends = list(asked), {request.id: [] for request in asked}, {}
    while waiting or not core.idle:
        while waiting and len(found) - len(ends) - len(waiting) < at_once:
            core.submit(waiting.pop(0))
        for event in core.turn().events:
            _note(event, found, ends)
        core.check_integrity()
    return {name: (tokens, ends[name]) for name, tokens in found.items()}


def _note(event: Event, found: dict[str, Answer], ends: dict[str, str]) -> None:
    assert not isinstance(event, Failed)
    if isinstance(event, Token):
        found[event.id].append((event.token_id, event.logprob, event.top_logprobs))
    elif isinstance(event, Finished):
        ends[event.id] = event.reason.value


load = partial(zinc_rt.load, device="cpu", n_ctx=96)


@pytest.fixture(scope="module")
def alone() -> Iterator[tuple[list[Submit], dict[str, tuple[Answer, str]]]]:
    """Each request by itself, with nothing cached."""
    with load(n_slots=1) as model:
        asked = requests(model)
        core = model.make_core()
        yield asked, answers(core, [replace(r, salt=r.id.encode()) for r in asked], 1)


@pytest.mark.parametrize(
    "options",
    [
        {"n_slots": 16},
        {"n_slots": 8, "kv_tokens": 16},
        pytest.param({"n_slots": 4, "n_batch": 32}, marks=pytest.mark.slow),
        pytest.param({"n_slots": 2, "n_batch": 16}, marks=pytest.mark.slow),
        pytest.param({"n_slots": 1, "n_batch": 512}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_requests_in_a_storm_get_what_they_get_alone(
    alone: tuple[list[Submit], dict[str, tuple[Answer, str]]], options: dict[str, int]
) -> None:
    asked, expected = alone
    with load(**options) as model:  # type: ignore[arg-type]
        core = model.make_core()
        assert answers(core, asked) == expected
        assert core.status.preemptions > 0 or "kv_tokens" not in options
        assert core.status.prefix_hit_tokens > 0


def test_requests_that_are_resumed_get_the_rest(
    alone: tuple[list[Submit], dict[str, tuple[Answer, str]]],
) -> None:
    asked, expected = alone
    draw, cuts, resumed = random.Random(9), {}, []
    for request in asked:
        tokens = [token for token, _, _ in expected[request.id][0]]
        cuts[request.id] = draw.randint(0, len(tokens))
        resumed.append(replace(request, resume=tuple(tokens[: cuts[request.id]])))
    with load(n_slots=8) as model:
        found = answers(model.make_core(), resumed)
    assert found == {name: (tokens[cuts[name] :], end) for name, (tokens, end) in expected.items()}
