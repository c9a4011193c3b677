"""Bodies of requests: JSON read once, its fields judged, its types checked, and the parameters of sampling in it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from zinc_rt.sampling.params import InvalidSamplingParam, SamplingParams
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.errors import ApiError, invalid
from zinc_rt.serving.api.fields import Field, judge
from zinc_rt.serving.api.limits import CHOICES, LOGIT_BIASES, check_depth, check_stops
from zinc_rt.serving.api.served_model import ServedModel

S = TypeVar("S", bound=msgspec.Struct)

_AT: Final = re.compile(r" - at `(?:key in )?\$\.?([^`]*)`$")
_SEEDS: Final = 1 << 64

Penalty = Annotated[float, Meta(ge=-2, le=2)]
Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=1)]


class Sampling(msgspec.Struct, kw_only=True):
    """The fields that several endpoints share."""

    model: str | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Share | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    min_p: Share | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    repeat_last_n: Annotated[int, Meta(ge=-1)] | None = None
    ignore_eos: bool | None = None
    stop_token_ids: Annotated[list[int], Meta(max_length=LOGIT_BIASES)] | None = None


class StreamOptions(msgspec.Struct):
    """How a stream ends."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


def check_stream_options(stream: bool | None, options: StreamOptions | None) -> bool:
    """Whether a stream ends with what it took. Raises `ApiError` for options without a stream."""
    if options is not None and not stream:
        raise invalid("stream_options needs stream: true", "stream_options")
    return bool(options and options.include_usage)


def read_json(body: bytes) -> dict[str, Any]:
    """The object in a body. Raises `ApiError` for what is no JSON, too deep, or no object."""
    check_depth(body)
    try:
        tree = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise invalid(f"the body is no JSON: {error}", code="invalid_json") from None
    if not isinstance(tree, dict):
        raise invalid("the body must be a JSON object", code="invalid_type")
    return tree


def read(call: Call, body: bytes, kind: type[S], fields: Sequence[Field], strict: bool) -> S:
    """A body as a request. Names of ignored fields go into the answer's headers. Raises `ApiError`."""
    obeyed, ignored = judge(fields, read_json(body), strict)
    ignore(call, ignored)
    return converted(obeyed, kind)


def ignore(call: Call, names: Sequence[str]) -> None:
    """Tell in the answer's headers and in the log what of a request is ignored."""
    if names:
        call.extra.append((b"x-zinc-ignored", ", ".join(names[:32]).encode()))
        call.facts["ignored"] = [*call.facts.get("ignored", ()), *names[:32]]


def converted(tree: Any, kind: type[S], strict: bool = True) -> S:
    """JSON as a request of this type. strict: a text is no number. Raises `ApiError`, which names the field."""
    try:
        return msgspec.convert(tree, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise _invalid_type(str(error)) from None


def _invalid_type(said: str) -> ApiError:
    found = _AT.search(said)
    missing = re.match(r"Object missing required field `(\w+)`", said)
    path = found[1] if found else ""
    if missing:
        path = f"{path}.{missing[1]}".lstrip(".")
        return ApiError(400, f"{path} is missing", param=path, code="missing_required_parameter")
    message = _AT.sub("", said)
    return invalid(f"{path or 'the body'}: {message[:300]}", path or None, "invalid_type")


def sampling_params(
    request: Sampling, model: ServedModel, max_tokens: int | None, logprobs: int | None
) -> SamplingParams:
    """The checked parameters of a request; what it omits is as the model is served. Raises `ApiError`."""
    given: dict[str, Any] = {
        name: value
        for name in (
            "frequency_penalty", "presence_penalty", "temperature", "top_p", "top_k", "min_p", "repetition_penalty",
            "repeat_last_n", "ignore_eos", "stop_token_ids",
        )
        if (value := getattr(request, name)) is not None
    }  # fmt: skip
    n_vocab = model.tokenizer.n_vocab
    for token_id in request.stop_token_ids or ():
        if not 0 <= token_id < n_vocab:
            raise invalid(f"stop_token_ids has {token_id}; the vocabulary has {n_vocab} tokens", "stop_token_ids")
    bias = _bias(request.logit_bias or {}, n_vocab)
    try:
        return replace(model.defaults, max_tokens=max_tokens, logprobs=logprobs, logit_bias=bias, seed=None, **given)
    except InvalidSamplingParam as error:
        raise invalid(str(error), error.field) from None


def _bias(given: Mapping[str, float], n_vocab: int) -> dict[int, float]:
    if len(given) > LOGIT_BIASES:
        raise invalid(f"logit_bias has {len(given)} tokens; at most {LOGIT_BIASES} are taken", "logit_bias")
    bias: dict[int, float] = {}
    for key, value in given.items():
        if not (key.isascii() and key.isdigit() and len(key) < 10 and int(key) < n_vocab):
            raise invalid(f"logit_bias has {key[:20]!r}; it must be a token id below {n_vocab}", "logit_bias")
        if not -100 <= value <= 100:
            raise invalid(f"logit_bias of {key} is {value:g}; it must be from -100 to 100", "logit_bias")
        bias[int(key)] = value
    return bias


def seed_of(request: Sampling) -> int | None:
    """The seed that a request names. Raises `ApiError`."""
    seed = request.seed
    if seed is None:
        return None
    if not -(_SEEDS >> 1) <= seed < _SEEDS:
        raise invalid("seed must have 64 bits at most", "seed")
    return seed % _SEEDS


def nth_seed(seed: int, n: int) -> int:
    """The seed of the n-th answer."""
    return (seed + n) % _SEEDS


def choices_of(n: int | None) -> int:
    """How many answers are asked for. Raises `ApiError`."""
    if n is not None and not 1 <= n <= CHOICES:
        raise invalid(f"n is {n}; it must be from 1 to {CHOICES}", "n")
    return n or 1


def stops_of(stop: str | list[str] | None, param: str = "stop") -> tuple[str, ...]:
    """The stop strings of a request. Raises `ApiError`."""
    stops = () if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)
    check_stops(stops, param)
    return stops
