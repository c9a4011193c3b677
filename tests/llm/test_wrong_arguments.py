"""Arguments of the Python API that are wrong: a typed error of one line that names them, before anything runs."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import zinc_rt
from zinc_rt.backends.cpu.backend import CpuBackend
from zinc_rt.backends.devices import Device, UnknownDevice
from zinc_rt.engine.engine import EngineError, Options
from zinc_rt.engine.prompts import EmptyPrompt
from zinc_rt.errors import UsageError, ZincError
from zinc_rt.gguf import GGUFError
from zinc_rt.gguf.errors import FileAccessError
from zinc_rt.kernels.errors import TokenOutOfRange
from zinc_rt.llm.model import ModelClosed
from zinc_rt.sampling.params import InvalidSamplingParam, SamplingParams
from zinc_rt.text import TokenizerError
from zinc_rt.utils.checks import show

NO_WHOLE_NUMBERS = [
    True,
    False,
    1.5,
    2.0,
    float("nan"),
    "64",
    b"64",
    [64],
    {},
    np.float64(4),
    np.True_,
    0,
    -1,
    10**5000,
]


def check_line(error: ZincError, name: str) -> None:
    line = str(error)
    assert name in line
    assert line.isprintable()
    assert len(line) < 400


@pytest.mark.parametrize("value", NO_WHOLE_NUMBERS, ids=show)
@pytest.mark.parametrize("field", ["n_ctx", "n_batch", "threads"])
def test_counts_of_load(field: str, value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        zinc_rt.load(device="cpu", **{field: value})
    check_line(caught.value, field)


@pytest.mark.parametrize(
    ("field", "value", "kind"),
    [
        ("path", 3, UsageError),
        ("path", True, UsageError),
        ("path", ["a.gguf"], UsageError),
        ("path", "", UsageError),
        ("path", "a\0b", FileAccessError),
        ("path", "/nonexistent/\x1b[31m", FileAccessError),
        ("device", 3, UnknownDevice),
        ("device", True, UnknownDevice),
        ("device", ["t_cpu"], UnknownDevice),
        ("device", "", UnknownDevice),
        ("device", b"t_cpu", UnknownDevice),
        ("kernels", 3, UsageError),
        ("kernels", "", UsageError),
        ("kernels", b"native", UsageError),
        ("isa", 3, UsageError),
        ("isa", True, UsageError),
        ("isa", b"avx2", UsageError),
        ("cache_dir", 3, UsageError),
        ("cache_dir", "", UsageError),
        ("notify", "print", UsageError),
        ("progress", 1, UsageError),
    ],
    ids=str,
)
def test_other_arguments_of_load(field: str, value: Any, kind: type[ZincError]) -> None:
    with pytest.raises(kind) as caught:
        zinc_rt.load(**{"device": "cpu", field: value})
    check_line(caught.value, "" if isinstance(caught.value, GGUFError) else field.removesuffix("_dir"))


@pytest.mark.parametrize("value", NO_WHOLE_NUMBERS, ids=show)
@pytest.mark.parametrize("field", ["n_ctx", "n_batch", "n_slots", "threads"])
def test_counts_of_options(field: str, value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        Options(**{field: value})
    check_line(caught.value, field)


@pytest.mark.parametrize("field", ["n_batch", "n_slots", "check_memory"])
def test_options_that_cannot_be_none(field: str) -> None:
    with pytest.raises(UsageError, match=f"{field} is None"):
        Options(**{field: None})


def test_numbers_of_numpy_and_names_of_devices_become_plain() -> None:
    options = Options(n_ctx=np.int64(64), n_batch=np.uint8(3), threads=np.int32(1), tier="t1")  # type: ignore[arg-type]
    assert (options.n_ctx, options.n_batch, options.threads, options.device) == (64, 3, 1, Device.gpu_kernel)
    assert {type(options.n_ctx), type(options.n_batch), type(options.threads)} == {int}


@pytest.mark.parametrize("value", [True, 1.0, "2", 0, 1025], ids=show)
def test_threads_of_a_cpu(value: Any) -> None:
    with pytest.raises(UsageError, match="threads is"):
        CpuBackend(threads=value)


NUMBERS = ["temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"]
COUNTS = ["top_k", "repeat_last_n", "seed", "max_tokens", "logprobs"]


@pytest.mark.parametrize(
    "value", [True, "1", b"1", bytearray(b"1"), [1], 1j, np.True_, np.array([0.5]), float("nan")], ids=show
)
@pytest.mark.parametrize("field", NUMBERS)
def test_numbers_of_sampling(field: str, value: Any) -> None:
    with pytest.raises(InvalidSamplingParam) as caught:
        SamplingParams(**{field: value})
    check_line(caught.value, field)


@pytest.mark.parametrize("value", [True, 1.0, "1", b"1", [1], np.float32(1), np.True_, -(10**5000)], ids=show)
@pytest.mark.parametrize("field", COUNTS)
def test_counts_of_sampling(field: str, value: Any) -> None:
    with pytest.raises(InvalidSamplingParam) as caught:
        SamplingParams(**{field: value})
    check_line(caught.value, field)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((field, None) for field in [*NUMBERS, "top_k", "repeat_last_n", "logit_bias", "stop", "stop_token_ids"]),
        ("logit_bias", [1]),
        ("logit_bias", {"a": 1.0}),
        ("logit_bias", {True: 1.0}),
        ("logit_bias", {1: "x"}),
        ("logit_bias", {1: True}),
        ("stop", 3),
        ("stop", b"abc"),
        ("stop", bytearray(b"abc")),
        ("stop", {"a": 1}),
        ("stop", ["a", 3]),
        ("stop", ["a", ""]),
        ("stop_token_ids", 3),
        ("stop_token_ids", "12"),
        ("stop_token_ids", b"abc"),
        ("stop_token_ids", bytearray(b"abc")),
        ("stop_token_ids", [1.0]),
        ("stop_token_ids", [True]),
        ("ignore_eos", 1),
        ("ignore_eos", None),
        ("ignore_eos", "yes"),
    ],
    ids=str,
)
def test_other_fields_of_sampling(field: str, value: Any) -> None:
    with pytest.raises(InvalidSamplingParam) as caught:
        SamplingParams(**{field: value})
    check_line(caught.value, field)


NO_TOKENS = [
    (b"abc", UsageError), (bytearray(b"abc"), UsageError), (memoryview(b"abc"), UsageError), (None, UsageError),
    (5, UsageError), (True, UsageError), ({65, 66}, UsageError), ({65: 66}, UsageError), ([65.0], UsageError),
    ([True], UsageError), (["65"], UsageError), ([None], UsageError), ([[65]], UsageError),
    (np.zeros((2, 2), np.int32), UsageError), (np.zeros(2), UsageError), (np.zeros(2, bool), UsageError),
    ([-1], TokenOutOfRange), ([10**5000], TokenOutOfRange), ([2**31], TokenOutOfRange), ([], EmptyPrompt),
]  # fmt: skip


@pytest.mark.parametrize(("tokens", "kind"), NO_TOKENS)
def test_token_ids(model: zinc_rt.Model, tokens: Any, kind: type[ZincError]) -> None:
    for call in (model.generate, model.stream, model.logits, model.logits_in_parts):
        if call == model.generate and isinstance(tokens, list) and tokens in (["65"], [[65]]):
            continue  # two lists of prompts
        with pytest.raises(kind) as caught:
            call(tokens)
        check_line(caught.value, "token")
    if kind is not EmptyPrompt:
        with pytest.raises(TokenizerError if kind is TokenOutOfRange else kind) as caught:
            model.detokenize(tokens)
        check_line(caught.value, "token")


@pytest.mark.parametrize("prompt", [None, 3, 1.5, b"abc"], ids=show)
def test_a_prompt_that_is_none(model: zinc_rt.Model, prompt: Any) -> None:
    with pytest.raises(UsageError, match=r"^the prompt is .*; give a text or a list of token ids$"):
        model.generate(prompt)


def test_token_ids_may_come_in_any_sequence(model: zinc_rt.Model) -> None:
    ids = model.tokenize("Once upon a time")
    texts = {model.generate(i, temperature=0, max_tokens=4).text for i in (ids, tuple(ids), np.array(ids, np.uint32))}
    assert texts == {model.generate("Once upon a time", temperature=0, max_tokens=4).text}
    assert model.logits(iter(ids)).tobytes() == model.logits(ids).tobytes()  # type: ignore[arg-type]
    assert model.detokenize([]) == ""


@pytest.mark.parametrize("text", [None, 3, True, b"abc", ["abc"]], ids=show)
def test_text_to_tokenize(model: zinc_rt.Model, text: Any) -> None:
    with pytest.raises(TokenizerError, match="text must be a str"):
        model.tokenize(text)


@pytest.mark.parametrize("value", [None, 1, "yes", np.True_], ids=show)
@pytest.mark.parametrize("field", ["add_special", "parse_special"])
def test_switches_of_tokenize(model: zinc_rt.Model, field: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{field} is"):
        model.tokenize("a", **{field: value})


@pytest.mark.parametrize("params", [5, True, "greedy", {"temperature": 0}], ids=show)
def test_params_of_a_generation(model: zinc_rt.Model, params: Any) -> None:
    with pytest.raises(UsageError, match="params is"):
        model.generate("a", params)


def test_a_closed_model_says_so() -> None:
    model = zinc_rt.load(device="cpu", n_ctx=64)
    running = model.stream("Once upon a time", max_tokens=20)
    next(running)
    model.close()
    with pytest.raises(ModelClosed, match="closed while it generated; load it again"):
        list(running)
    for call in (model.generate, model.stream):
        with pytest.raises(ModelClosed, match="the model is closed; load it again"):
            call("Once")
    for more in (model.logits, model.logits_in_parts):
        with pytest.raises(ModelClosed, match="the model is closed"):
            more([65])
    assert issubclass(ModelClosed, EngineError)
    model.close()  # once more is no error


def test_closing_from_another_thread_ends_a_generation_with_one_error() -> None:
    for round_ in range(0, 8, 2):
        model = zinc_rt.load(device="cpu", n_ctx=512)
        closing = threading.Timer(0.002 * round_, model.close)
        closing.start()
        with pytest.raises(ModelClosed):
            generate_on_and_on(model, temperature=round_ // 2 % 2)
        closing.join()


def generate_on_and_on(model: zinc_rt.Model, temperature: float) -> None:
    while True:
        model.generate("Once upon a time", temperature=temperature, max_tokens=None, ignore_eos=True)
