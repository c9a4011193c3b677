"""The Python API on the model in the package."""

from __future__ import annotations

import dataclasses
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import zinc_rt
from zinc_rt.engine.batch import EngineError
from zinc_rt.errors import UsageError
from zinc_rt.kernels.errors import TokenOutOfRange
from zinc_rt.llm.model import EmptyPrompt, PromptTooLong
from zinc_rt.mem.errors import MemoryPlanError
from zinc_rt.sampling.params import InvalidSamplingParam, SamplingParams, UnknownParameter

PROMPT = "Once upon a time"


def bits(logits: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(logits).view(np.uint32)


def test_the_stream_is_the_generation(model: zinc_rt.Model) -> None:
    chunks = list(model.stream(PROMPT, temperature=0.0, max_tokens=12, logprobs=2))
    whole = model.generate(PROMPT, temperature=0.0, max_tokens=12, logprobs=2)
    assert "".join(c.text for c in chunks) == whole.text
    assert tuple(c.token_id for c in chunks[:-1]) == whole.token_ids
    assert [c.finish_reason for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    last = chunks[-1]
    assert last.token_id is None
    assert last.finish_reason == whole.finish_reason == "length"
    assert last.stats is not None
    assert last.stats.prompt_tokens == len(model.tokenize(PROMPT))
    assert last.stats.completion_tokens == len(whole.token_ids) == 12
    assert last.stats.decode_tokens_per_second > 0


def test_logprobs_are_those_of_the_logits(model: zinc_rt.Model) -> None:
    out = model.generate(PROMPT, temperature=0.9, seed=3, max_tokens=5, logprobs=3)
    ids = [*model.tokenize(PROMPT), *out.token_ids]
    logits = model.logits(ids).astype(np.float64)
    start = len(ids) - len(out.token_ids)
    assert out.logprobs is not None
    assert out.top_logprobs is not None
    for i, (token, logprob, top) in enumerate(zip(out.token_ids, out.logprobs, out.top_logprobs, strict=True)):
        row = logits[start + i - 1]
        truth = row - row.max() - np.log(np.exp(row - row.max()).sum())
        assert logprob == pytest.approx(truth[token], abs=1e-9)
        assert [t for t, _ in top] == np.argsort(-truth, kind="stable")[:3].tolist()


def test_same_seed_same_text(model: zinc_rt.Model) -> None:
    texts = {model.generate(PROMPT, seed=11, temperature=1.0, max_tokens=20).text for _ in range(3)}
    drawn = model.generate(PROMPT, temperature=1.0, max_tokens=20)
    assert model.generate(PROMPT, temperature=1.0, max_tokens=20, seed=drawn.seed).text == drawn.text
    others = {model.generate(PROMPT, seed=s, temperature=1.0, max_tokens=20).text for s in range(4)}
    assert len(texts) == 1
    assert len(others) > 1


def test_greedy_follows_the_logits(model: zinc_rt.Model) -> None:
    out = model.generate(PROMPT, temperature=0.0, max_tokens=8, ignore_eos=True)
    ids = [*model.tokenize(PROMPT), *out.token_ids]
    best = model.logits(ids).argmax(axis=1)
    n = len(model.tokenize(PROMPT))
    assert list(out.token_ids) == best[n - 1 : -1].tolist()


@pytest.mark.parametrize("n_batch", [1, 7, 64])
def test_chunk_size_changes_no_bit(model: zinc_rt.Model, n_batch: int) -> None:
    ids = model.tokenize("Once upon a time there was a little fox who lived by the river. " * 3)[:40]
    with zinc_rt.load(device="cpu", n_ctx=64, n_batch=n_batch) as other:
        assert (bits(other.logits(ids)) == bits(model.logits(ids))).all()


def test_a_reused_prefix_changes_nothing(model: zinc_rt.Model) -> None:
    first = model.generate(PROMPT, temperature=0.0, max_tokens=10)
    longer = PROMPT + first.text
    again = model.generate(longer, temperature=0.0, max_tokens=10)
    assert again.stats.cached_tokens > 0
    with zinc_rt.load(device="cpu", n_ctx=256) as fresh:
        cold = fresh.generate(longer, temperature=0.0, max_tokens=10)
    assert cold.stats.cached_tokens == 0
    assert cold.token_ids == again.token_ids
    model.engine.cache.check_integrity()


def test_stop_strings_are_never_shown(model: zinc_rt.Model) -> None:
    free = model.generate(PROMPT, temperature=0.0, max_tokens=40).text
    stop = free[15:22]
    chunks = list(model.stream(PROMPT, temperature=0.0, max_tokens=40, stop=stop))
    text = "".join(c.text for c in chunks)
    assert text == free[: free.index(stop)]
    assert chunks[-1].finish_reason == "stop"


def test_stop_ids_end_the_text(model: zinc_rt.Model) -> None:
    free = model.generate(PROMPT, temperature=0.0, max_tokens=10)
    out = model.generate(PROMPT, temperature=0.0, max_tokens=10, stop_token_ids=(free.token_ids[4],))
    cut = free.token_ids.index(free.token_ids[4])
    assert out.token_ids == free.token_ids[:cut]
    assert out.finish_reason == "stop"


def test_logit_bias_forces_and_forbids(model: zinc_rt.Model) -> None:
    greedy = model.generate(PROMPT, temperature=0.0, max_tokens=1).token_ids[0]
    forbidden = model.generate(PROMPT, temperature=0.0, max_tokens=1, logit_bias={greedy: -np.inf}).token_ids
    assert forbidden != (greedy,)
    forced = model.generate(PROMPT, temperature=1.0, max_tokens=3, logit_bias={65: np.inf}).token_ids
    assert forced == (65, 65, 65)


def test_the_context_fills_and_says_so() -> None:
    with zinc_rt.load(device="cpu", n_ctx=24) as small:
        out = small.generate(PROMPT, max_tokens=None, ignore_eos=True, temperature=0.0)
        assert out.finish_reason == "context"
        assert out.stats.prompt_tokens + out.stats.completion_tokens == 25  # the last token needs no place
        with pytest.raises(PromptTooLong, match="the context holds 24"):
            small.generate(list(range(65, 65 + 24)))
        with pytest.raises(EngineError, match="25 tokens do not fit the context of 24"):
            small.logits([65] * 25)
        assert small.generate(list(range(65, 65 + 23)), max_tokens=1).finish_reason == "length"


def test_bad_requests_are_typed_and_early(model: zinc_rt.Model) -> None:
    for empty in ("", []):
        with pytest.raises(EmptyPrompt):
            model.stream(empty)
    with pytest.raises(UnknownParameter, match="temprature"):
        model.stream(PROMPT, temprature=1)
    with pytest.raises(InvalidSamplingParam, match="top_p"):
        model.stream(PROMPT, top_p=1.5)
    with pytest.raises(TokenOutOfRange, match=str(model.n_vocab)):
        model.stream([0, model.n_vocab])
    with pytest.raises(InvalidSamplingParam, match="logit_bias"):
        model.stream(PROMPT, logit_bias={model.n_vocab: 1.0})


def test_generations_run_beside_each_other(model: zinc_rt.Model) -> None:
    expected = [model.generate(PROMPT, max_tokens=9, seed=seed) for seed in (1, 2)]
    first, second = (model.stream(PROMPT, max_tokens=9, seed=seed) for seed in (1, 2))
    head = [next(first), next(first)]
    other = zinc_rt.Generation.collect(second)
    whole = zinc_rt.Generation.collect([*head, *first])
    assert (whole.token_ids, other.token_ids) == (expected[0].token_ids, expected[1].token_ids)
    assert (whole.text, other.text) == (expected[0].text, expected[1].text)


def test_a_closed_stream_leaves_the_model_usable(model: zinc_rt.Model) -> None:
    running = model.stream(PROMPT, max_tokens=5)
    next(running)
    running.close()
    assert model.generate(PROMPT, max_tokens=1).token_ids
    model.engine.cache.check_integrity()


def test_many_prompts_are_what_each_is_alone(model: zinc_rt.Model) -> None:
    prompts = [PROMPT, "The fox", PROMPT, [65, 66, 67], "A boat"] * 3
    params = [
        SamplingParams(temperature=1.0, seed=seed, max_tokens=4 + seed, logprobs=1, stop=("e",) if seed % 3 else ())
        for seed in range(len(prompts))
    ]
    alone = [model.generate(prompt, own) for prompt, own in zip(prompts, params, strict=True)]
    together = model.generate(prompts, params)
    for one, many in zip(alone, together, strict=True):
        for field in ("text", "token_ids", "logprobs", "top_logprobs", "finish_reason", "seed"):
            assert getattr(one, field) == getattr(many, field)
    assert [g.text for g in model.generate(prompts[:2], params[0])] == [
        model.generate(prompt, params[0]).text for prompt in prompts[:2]
    ]


def test_lists_of_prompts_that_do_not_fit_are_refused(model: zinc_rt.Model) -> None:
    with pytest.raises(UsageError, match="2 prompts and 1 params"):
        model.generate([PROMPT, PROMPT], [SamplingParams()])
    with pytest.raises(EmptyPrompt):
        model.generate([PROMPT, ""])
    assert model.generate(PROMPT, max_tokens=1).token_ids


def test_threads_share_a_model(model: zinc_rt.Model) -> None:
    expected = [model.generate(PROMPT, seed=seed, temperature=1.0, max_tokens=12).text for seed in range(6)]
    with ThreadPoolExecutor(6) as pool:
        futures = [pool.submit(model.generate, PROMPT, seed=seed, temperature=1.0, max_tokens=12) for seed in range(6)]
        assert [future.result(60).text for future in futures] == expected


def test_logits_do_not_depend_on_generations_beside_them(model: zinc_rt.Model) -> None:
    ids = (model.tokenize("Once upon a time there was a little fox who lived by the river. ") * 8)[:150]
    expected, text = model.logits(ids), model.generate(PROMPT, seed=5, max_tokens=30)
    running = model.stream(PROMPT, seed=5, max_tokens=30)
    chunks = [next(running)]
    for start, part in model.logits_in_parts(ids):
        assert (bits(part) == bits(expected[start : start + len(part)])).all()
        chunks += [next(running) for _ in range(3)]
    assert zinc_rt.Generation.collect([*chunks, *running]).token_ids == text.token_ids
    model.engine.cache.check_integrity()


def test_a_text_that_the_kv_cache_has_no_room_for_is_refused_with_numbers(tmp_path: Path) -> None:
    with zinc_rt.load(device="cpu", n_ctx=256, kv_tokens=64) as small:
        for call in (lambda: small.logits([5] * 100), lambda: small.save_state(tmp_path / "s", [5] * 100)):
            with pytest.raises(EngineError, match=r"(100|96) tokens need [67] KV pages of 16 positions, there are 5;"):
                call()
        assert small.logits([5] * 40).shape == (40, small.n_vocab)
        assert not list(tmp_path.iterdir())


def test_an_interrupt_leaves_the_model_usable(model: zinc_rt.Model) -> None:
    expected = model.generate(PROMPT, temperature=0.0, max_tokens=6).text
    running = model.stream(PROMPT, temperature=0.0, max_tokens=6)
    next(running)
    with pytest.raises(KeyboardInterrupt):
        running.throw(KeyboardInterrupt)
    assert model.generate(PROMPT, temperature=0.0, max_tokens=6).text == expected


def test_text_round_trip(model: zinc_rt.Model) -> None:
    text = "A fox said: “héllo, 世界” 🦊\n\n<|im_end|> done."
    assert model.detokenize(model.tokenize(text)) == text
    ids = model.tokenize(text, parse_special=False)
    assert model.detokenize(ids) == text
    assert len(ids) > len(model.tokenize(text))


def test_what_a_model_says_of_itself(model: zinc_rt.Model) -> None:
    assert model.architecture == "qwen3"
    assert model.n_ctx == 256
    assert model.n_vocab == model.info.n_vocab
    assert str(model.device) == "cpu"
    assert model.plan.total > Path(model.file.path).stat().st_size // 2
    assert model.chat_template.render([{"role": "user", "content": "Hello"}]).endswith("assistant\n")
    assert dataclasses.asdict(model.info)["architecture"] == "qwen3"
    assert model.name


def test_models_and_texts_show_what_they_are(model: zinc_rt.Model) -> None:
    assert repr(model) == "<Model 'zinc-story': qwen3, Q8_0, n_ctx=256, device='cpu', generates>"
    text = model.generate(PROMPT, max_tokens=3, seed=1)
    assert repr(text) == f"<Generation {text.text!r}, 3 tokens, finish_reason='length', seed=1>"
    assert str(text) == text.text == "".join(map(str, model.stream(PROMPT, max_tokens=3, seed=1)))
    with zinc_rt.load(device="cpu", n_ctx=64) as other:
        pass
    assert repr(other) == "<Model 'zinc-story', closed>"


def test_tokens_have_texts(model: zinc_rt.Model) -> None:
    fox = model.tokenize("🦊")
    assert b"".join(map(model.token_bytes, fox)).decode() == "🦊"
    assert {model.token_text(token) for token in fox} == {"\ufffd"}
    forced = {"temperature": 0, "logit_bias": {fox[0]: np.inf}, "max_tokens": 2, "logprobs": 1}
    text = model.generate(PROMPT, **forced)
    assert (text.token_texts, text.token_bytes) == (("\ufffd",) * 2, (model.token_bytes(fox[0]),) * 2)
    assert text.top_logprobs is not None
    top = text.top_logprobs[0][0]
    assert top == (top.id, top.logprob)
    assert (top.text, top.bytes) == (model.token_text(top.id), model.token_bytes(top.id))
    assert vars(pickle.loads(pickle.dumps(top))) == vars(top)


def test_a_chat_is_no_prompt(model: zinc_rt.Model) -> None:
    message = {"role": "user", "content": "Hello"}
    for prompt in ([message], message, (message,)):
        for call in (model.generate, model.stream):
            with pytest.raises(UsageError, match="give them to chat or chat_stream"):
                call(prompt)  # type: ignore[operator]
    with pytest.raises(UsageError, match="several to generate"):
        model.stream([PROMPT, PROMPT])  # type: ignore[arg-type]
    asked = {"max_tokens": 6, "seed": 2}
    assert model.chat("Hello", **asked).text == model.chat([message], **asked).text


def test_users_names_come_first() -> None:
    at = zinc_rt.__all__.index
    assert at("load") < at("Model") < at("Engine") < at("seed") < at("kmd")
    assert "kmd" not in dir(zinc_rt)
    assert "kmd" in dir(zinc_rt.seed)
    assert zinc_rt.seed.kmd is zinc_rt.kmd


def test_generate_in_one_call() -> None:
    assert isinstance(zinc_rt.generate(PROMPT, max_tokens=3, seed=0), str)


def test_logits_that_have_no_room_are_refused(model: zinc_rt.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zinc_rt.llm.logits.available_memory", lambda: 4 * model.n_vocab - 1)
    with pytest.raises(MemoryPlanError, match=r"the logits of 1 tokens take .* from logits_in_parts"):
        model.logits([1])
    assert len(list(model.logits_in_parts([1]))) == 1
