"""Bodies of requests: JSON read once, its fields judged, its types checked, and the parameters of sampling in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, TypeVar, cast

import msgspec
from msgspec import Meta

from zinc_rt.sampling.params import (
    COUNT_LIMIT,
    LOCAL,
    SEED_LIMIT,
    Api,
    Integer,
    InvalidSamplingParam,
    Number,
    ParamType,
    SamplingParams,
    TokenBias,
    TokenIds,
    parameters_of,
)
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.errors import ApiError, invalid
from zinc_rt.serving.api.fields import ApiField, judge
from zinc_rt.serving.api.limits import CHOICES, LOGIT_BIASES, check_depth, check_stops
from zinc_rt.serving.api.served_model import ServedModel

S = TypeVar("S", bound=msgspec.Struct)

_AT: Final = re.compile(r" - at `(?:key in )?\$\.?([^`]*)`$")

DRAWN_SEED: Final = 0xFFFFFFFF
"""As a seed of llama.cpp and Ollama it asks for another one each time, and so does -1."""

Count = Annotated[int, Meta(ge=1)]


def takes_sampling(api: Api) -> Callable[[type[S]], type[S]]:
    """A request with the parameters of sampling that an interface takes as fields besides its own; see
    `given_sampling`."""

    def more(kind: type[S]) -> type[S]:
        fields: list[tuple[str, Any, None]] = [
            (row.json_name(api), _json_type(row.json_kind(api)) | None, None) for row in parameters_of(api)
        ]
        space = {"__doc__": kind.__doc__}
        made = msgspec.defstruct(
            kind.__name__, fields, bases=(kind,), kw_only=True, module=kind.__module__, namespace=space
        )
        return cast("type[S]", made)

    return more


def _json_type(kind: ParamType) -> Any:
    """The type of a field in JSON, with its limits."""
    if isinstance(kind, Number):
        return Annotated[float, Meta(gt=kind.low, le=kind.high) if kind.above else Meta(ge=kind.low, le=kind.high)]
    if isinstance(kind, Integer):
        return Annotated[int, Meta(ge=kind.low)] if kind.low > -COUNT_LIMIT else int  # of a seed `seed_of` speaks
    if isinstance(kind, TokenBias):
        return dict[str, float]
    return Annotated[list[int], Meta(max_length=LOGIT_BIASES)] if isinstance(kind, TokenIds) else bool


def given_sampling(request: msgspec.Struct, api: Api) -> dict[str, Any]:
    """The parameters of sampling that a request gives, by their names in the table."""
    given = {
        row.name: value for row in parameters_of(api) if (value := getattr(request, row.json_name(api))) is not None
    }
    if api in LOCAL and given.get("seed") in (-1, DRAWN_SEED):
        del given["seed"]
    return given


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


def read(call: Call, body: bytes, kind: type[S], fields: Sequence[ApiField], strict: bool) -> S:
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


def _invalid_type(reason: str) -> ApiError:
    found = _AT.search(reason)
    missing = re.match(r"Object missing required field `(\w+)`", reason)
    path = found[1] if found else ""
    if missing:
        path = f"{path}.{missing[1]}".lstrip(".")
        return ApiError(400, f"{path} is missing", param=path, code="missing_required_parameter")
    message = _AT.sub("", reason)
    return invalid(f"{path or 'the body'}: {message[:300]}", path or None, "invalid_type")


def sampling_params(
    given: Mapping[str, Any], model: ServedModel, max_tokens: int | None, logprobs: int | None
) -> SamplingParams:
    """The checked parameters of a request; what it omits is as the model is served. Raises `ApiError`.

    given: see `given_sampling`; the seed in it is left to `seed_of`.
    """
    n_vocab = model.tokenizer.n_vocab
    for token_id in given.get("stop_token_ids", ()):
        if not 0 <= token_id < n_vocab:
            raise invalid(f"stop_token_ids has {token_id}; the vocabulary has {n_vocab} tokens", "stop_token_ids")
    bias = _bias(given.get("logit_bias", {}), n_vocab)
    more = {"max_tokens": max_tokens, "logprobs": logprobs, "logit_bias": bias, "seed": None}
    try:
        return replace(model.defaults, **{**given, **more})
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


def seed_of(given: Mapping[str, Any]) -> int | None:
    """The seed that a request names. given: see `given_sampling`. Raises `ApiError`."""
    seed: int | None = given.get("seed")
    if seed is None:
        return None
    if not -(SEED_LIMIT >> 1) <= seed < SEED_LIMIT:
        raise invalid("seed must have 64 bits at most", "seed")
    return seed % SEED_LIMIT


def nth_seed(seed: int, n: int) -> int:
    """The seed of the n-th answer."""
    return (seed + n) % SEED_LIMIT


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
