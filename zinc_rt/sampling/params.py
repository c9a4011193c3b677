"""The parameters of text generation: `SamplingParams`, checked when it is made.

docs/how/sampling.md defines every field to the last bit; the arithmetic is in `sampler.py`.
This module imports no array library, so that reading options stays cheap.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from zinc_rt.errors import UsageError
from zinc_rt.utils.checks import real, show, whole

SEED_LIMIT = 2**64
"""Seeds are 64 bits: the key of the generator."""
COUNT_LIMIT = 2**63 - 1
"""The largest count and token id: messages between processes and records hold integers of 64 bits."""


class InvalidSamplingParam(UsageError):
    """A sampling parameter has a value outside its limits. `field`, `value` and `limits` say which."""

    def __init__(self, field: str, value: object, limits: str) -> None:
        self.field = field
        self.value = value
        self.limits = limits
        super().__init__(f"sampling parameter {field} is {show(value)}; it must be {limits}")


class UnknownParameter(UsageError):
    """A keyword that is not a sampling parameter. `unknown` and `known` list the names."""

    def __init__(self, unknown: Iterable[str]) -> None:
        self.unknown = tuple(sorted(unknown))
        self.known = tuple(f.name for f in dataclasses.fields(SamplingParams))
        plural = "s" if len(self.unknown) > 1 else ""
        super().__init__(
            f"unknown sampling parameter{plural} {', '.join(self.unknown)}; known: {', '.join(self.known)}"
        )


class SamplingOverrides(TypedDict, total=False):
    """Fields of `SamplingParams` by name, as keyword arguments give them."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    repeat_last_n: int
    logit_bias: Mapping[int, float]
    seed: int | None
    max_tokens: int | None
    stop: str | Iterable[str]
    stop_token_ids: Iterable[int]
    logprobs: int | None
    ignore_eos: bool


@dataclass(frozen=True)
class SamplingParams:
    """Parameters that choose tokens and end a text. Immutable; a value outside its limits raises
    `InvalidSamplingParam`, a value of the wrong type too.

    Numbers of NumPy are turned into Python's, `stop` may be given as one string or any iterable of strings.
    """

    temperature: float = 0.8
    """Divides the logits before the draw; 0 takes the most likely token always (greedy)."""
    top_k: int = 40
    """Keep the k most likely tokens; 0 keeps all."""
    top_p: float = 0.95
    """Keep the most likely tokens whose probabilities sum to at least this; 1 keeps all."""
    min_p: float = 0.05
    """Drop tokens less likely than this share of the most likely token's probability; 0 drops none."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies other logits of recent tokens; 1 is off."""
    presence_penalty: float = 0.0
    """Subtracted once from the logit of every recent token."""
    frequency_penalty: float = 0.0
    """Subtracted from the logit of a recent token for each time it occurred."""
    repeat_last_n: int = 64
    """How many tokens count as recent, prompt included; 0: none, -1: all."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Added to logits by token id; -inf forbids a token, +inf forces it."""
    seed: int | None = None
    """Same seed, same text. None: the sampler draws one and exposes it as `Sampler.seed`."""
    max_tokens: int | None = 256
    """Most tokens to generate. None: until the model stops or the context is full."""
    stop: tuple[str, ...] = ()
    """Strings that end the text; none of them is ever part of it."""
    stop_token_ids: tuple[int, ...] = ()
    """Token ids that end the text, besides the model's own."""
    logprobs: int | None = None
    """None: none. n: log-probability of each chosen token and of the n most likely tokens."""
    ignore_eos: bool = False
    """Go on after the model's end-of-text tokens (they are generated like any other)."""

    if TYPE_CHECKING:  # what may be given is more than what is kept

        def __init__(self, **fields: Unpack[SamplingOverrides]) -> None: ...

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        put("temperature", _number("temperature", self.temperature, 0.0, None))
        limits = "an integer from 0 to 2**63 - 1 (0 keeps all tokens)"
        put("top_k", _integer("top_k", self.top_k, 0, COUNT_LIMIT, limits))
        put("top_p", _number("top_p", self.top_p, 0.0, 1.0))
        put("min_p", _number("min_p", self.min_p, 0.0, 1.0))
        put(
            "repetition_penalty",
            _number("repetition_penalty", self.repetition_penalty, 0.0, None, open_=True),
        )
        put("presence_penalty", _number("presence_penalty", self.presence_penalty, None, None))
        put("frequency_penalty", _number("frequency_penalty", self.frequency_penalty, None, None))
        limits = "an integer from -1 to 2**63 - 1 (0: none, -1: all)"
        put("repeat_last_n", _integer("repeat_last_n", self.repeat_last_n, -1, COUNT_LIMIT, limits))
        put("logit_bias", _bias(self.logit_bias))
        if self.seed is not None:
            limits = f"an integer from 0 to {SEED_LIMIT - 1}, or None for a random one"
            put("seed", _integer("seed", self.seed, 0, SEED_LIMIT - 1, limits))
        if self.max_tokens is not None:
            limits = "an integer from 1 to 2**63 - 1, or None for no limit but the context"
            put("max_tokens", _integer("max_tokens", self.max_tokens, 1, COUNT_LIMIT, limits))
        put("stop", _strings(self.stop))
        put("stop_token_ids", _token_ids(self.stop_token_ids))
        if self.logprobs is not None:
            limits = "an integer from 0 to 2**63 - 1, or None for off"
            put("logprobs", _integer("logprobs", self.logprobs, 0, COUNT_LIMIT, limits))
        if not isinstance(self.ignore_eos, bool):
            raise InvalidSamplingParam("ignore_eos", self.ignore_eos, "True or False")

    @staticmethod
    def with_overrides(base: SamplingParams | None = None, /, **overrides: Unpack[SamplingOverrides]) -> SamplingParams:
        """`base` (None: the defaults) with some fields replaced, checked anew.

        Raises `UnknownParameter` for a keyword that is no field, `InvalidSamplingParam` for a bad value, `UsageError`
        for a base that is no `SamplingParams`.
        """
        if base is not None and not isinstance(base, SamplingParams):
            raise UsageError(f"params is {show(base)}, it must be a SamplingParams or None")
        known = {f.name for f in dataclasses.fields(SamplingParams)}
        if unknown := overrides.keys() - known:
            raise UnknownParameter(unknown)
        given: dict[str, Any] = {**overrides}
        return dataclasses.replace(base if base is not None else SamplingParams(), **given)

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature == 0.0

    @property
    def has_penalties(self) -> bool:
        """Whether any penalty changes the logits of recent tokens."""
        return self.repeat_last_n != 0 and (
            self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0
        )


def _number(name: str, value: object, low: float | None, high: float | None, *, open_: bool = False) -> float:
    """`value` as a finite float in [low, high], or (low, high] when `open_`."""
    sign = ">" if open_ else ">="
    if low is None:
        limits = "a finite number"
    elif high is None:
        limits = f"a finite number {sign} {low:g}"
    else:
        limits = f"a number from {low:g} to {high:g}"
    number = real(value)
    if (
        number is None
        or not math.isfinite(number)
        or (low is not None and (number < low or (open_ and number == low)))
        or (high is not None and number > high)
    ):
        raise InvalidSamplingParam(name, value, limits)
    return number


def _integer(name: str, value: object, low: int, high: int, limits: str) -> int:
    number = whole(value)
    if number is None or not low <= number <= high:
        raise InvalidSamplingParam(name, value, limits)
    return number


def _bias(value: object) -> dict[int, float]:
    limits = "a mapping from token id (integer from 0 to 2**63 - 1) to a number or +-inf"
    if not isinstance(value, Mapping):
        raise InvalidSamplingParam("logit_bias", value, limits)
    checked: dict[int, float] = {}
    for key, amount in value.items():
        token_id, number = whole(key), real(amount)
        if token_id is None or not 0 <= token_id <= COUNT_LIMIT or number is None or math.isnan(number):
            raise InvalidSamplingParam("logit_bias", {key: amount}, limits)
        checked[token_id] = number
    return checked


def _strings(value: object) -> tuple[str, ...]:
    limits = "a string or an iterable of strings, none of them empty"
    if isinstance(value, str):
        value = (value,)
    if isinstance(value, (bytes, bytearray, memoryview, Mapping)) or not isinstance(value, Iterable):
        raise InvalidSamplingParam("stop", value, limits)
    strings = tuple(value)
    for string in strings:
        if not isinstance(string, str) or not string:
            raise InvalidSamplingParam("stop", strings, limits)
    return strings


def _token_ids(value: object) -> tuple[int, ...]:
    limits = "an iterable of token ids (integers from 0 to 2**63 - 1)"
    if isinstance(value, (str, bytes, bytearray, memoryview, Mapping)) or not isinstance(value, Iterable):
        raise InvalidSamplingParam("stop_token_ids", value, limits)
    given = tuple(value)
    ids = tuple(i for i in map(whole, given) if i is not None and 0 <= i <= COUNT_LIMIT)
    if len(ids) != len(given):
        raise InvalidSamplingParam("stop_token_ids", given, limits)
    return ids
