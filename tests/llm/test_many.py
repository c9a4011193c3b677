"""`generate_each`: many texts, each as soon as it is whole, with as many in flight as there are slots."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

import zinc_rt
from zinc_rt.engine.prompts import EmptyPrompt
from zinc_rt.errors import UsageError
from zinc_rt.sampling.generation import Generation
from zinc_rt.sampling.params import SamplingParams

SLOTS = 3


@pytest.fixture(scope="module")
def model() -> Iterator[zinc_rt.Model]:
    with zinc_rt.load(device="cpu", n_ctx=128, n_slots=SLOTS) as loaded:
        yield loaded


def collected(model: zinc_rt.Model, prompts: Iterable[Any], *, tasks: bool, **options: Any) -> list[Any]:
    """What `generate_each` gives, for threads or for tasks."""

    async def gathered() -> list[tuple[int, Generation]]:
        return [pair async for pair in zinc_rt.AsyncModel(model).generate_each(prompts, **options)]

    return asyncio.run(gathered()) if tasks else list(model.generate_each(prompts, **options))


@pytest.mark.parametrize("tasks", [False, True])
def test_texts_come_as_they_end_and_prompts_are_read_as_slots_are_free(model: zinc_rt.Model, *, tasks: bool) -> None:
    read, told = 0, list[tuple[int, int | None]]()
    lengths = [90, 2, 40, 4, 5, 2, 9, 2]  # far apart: another thread's turn may come between two looks

    def prompts() -> Iterator[str]:
        nonlocal read
        for at in range(len(lengths)):
            assert at - len(told) < SLOTS  # no more are in flight
            read += 1
            yield f"The fox number {at}"

    params = [SamplingParams(max_tokens=n, seed=at, ignore_eos=True) for at, n in enumerate(lengths)]
    found = collected(
        model, prompts(), tasks=tasks, params=params, progress=lambda done, total: told.append((done, total))
    )
    assert sorted(number for number, _ in found) == list(range(read))
    order = [number for number, _ in found]
    assert order.index(1) < order.index(2) < order.index(0)  # those that began together, by their lengths
    assert told == [(n, None) for n in range(1, len(lengths) + 1)]
    for number, text in found:
        assert text.token_ids == model.generate(f"The fox number {number}", params[number]).token_ids


def test_a_list_of_prompts_tells_its_progress(model: zinc_rt.Model, capsys: pytest.CaptureFixture[str]) -> None:
    told = list[tuple[int, int | None]]()
    prompts = [f"A day {n}" for n in range(5)]
    texts = model.generate(prompts, max_tokens=3, seed=1, progress=lambda done, total: told.append((done, total)))
    assert told == [(n, 5) for n in range(1, 6)]
    assert [t.text for t in texts] == [model.generate(p, max_tokens=3, seed=1).text for p in prompts]
    model.generate(prompts, max_tokens=1, progress=True)
    assert "5/5 texts" in capsys.readouterr().err


@pytest.mark.parametrize("tasks", [False, True])
def test_a_prompt_that_cannot_be_computed_is_named(model: zinc_rt.Model, *, tasks: bool) -> None:
    prompts = ["Once", "The fox", "", "A day"]
    with pytest.raises(EmptyPrompt) as caught:
        collected(model, prompts, tasks=tasks, max_tokens=1)
    assert caught.value.__notes__ == ["prompt 2 of those that were given, counted from 0"]
    with pytest.raises(UsageError, match="there are 1 params and more prompts"):
        collected(model, prompts[:2], tasks=tasks, params=[SamplingParams()])
    assert model.generate("Once", max_tokens=1).stats.completion_tokens == 1


def test_an_iterator_that_is_closed_ends_its_texts(model: zinc_rt.Model) -> None:
    texts = model.generate_each((f"Day {n}" for n in range(10**9)), max_tokens=2, ignore_eos=True)
    next(texts)
    texts.close()
    with model.client._lock:  # what was left ends here
        assert model.client.core.idle


@pytest.mark.parametrize(
    ("prompts", "options", "said"),
    [
        ("Once", {}, "prompts is 'Once'; give an iterable"),
        (["Once"], {"progress": 1}, "progress is 1, it must be True, False or a function"),
        (["Once"], {"params": "greedy"}, "params is 'greedy'"),
    ],
)
def test_wrong_arguments(model: zinc_rt.Model, prompts: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        list(model.generate_each(prompts, **options))


def test_one_text_has_one_vector() -> None:
    with zinc_rt.load(device="cpu", embeddings=True, n_ctx=64) as model:
        many = model.embed(["A fox sleeps.", "It rains."])
        assert many.shape == (2, 192)
        assert (model.embed("A fox sleeps.") == many[0]).all()
        assert (model.embed(model.tokenize("A fox sleeps.")) == many[0]).all()
        assert model.embed("It rains.", dimensions=8).shape == (8,)
        assert (asyncio.run(zinc_rt.AsyncModel(model).embed("It rains.")) == many[1]).all()
