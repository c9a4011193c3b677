"""The parameters of text generation: one table of them, and `SamplingParams`, checked when it is made.

The table is the fields of `SamplingParams`: each is a `Parameter` with its default, its limits, its option on the
command line and its field in JSON requests. The command, the servers' requests and the table in docs/how/sampling.md
are made from it. A new parameter is a field here, a name in `SamplingOverrides`, and the arithmetic.

docs/how/sampling.md defines every field to the last bit; the arithmetic is in `sampler.py`. This module imports no
array library, so that reading options stays cheap.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol, TypedDict, Unpack

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
        self.known = tuple(PARAMETERS)
        plural = "s" if len(self.unknown) > 1 else ""
        super().__init__(
            f"unknown sampling parameter{plural} {', '.join(self.unknown)}; known: {', '.join(self.known)}"
        )


class ParamType(Protocol):
    """The type of a parameter and its limits."""

    @property
    def limits(self) -> str:
        """The limits in words."""
        ...

    def check(self, name: str, value: object) -> object:
        """The value as it is kept. Raises `InvalidSamplingParam` outside the limits."""
        ...


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number from `low` to `high` (None: without that limit). above: `low` itself is too small."""

    low: float | None = None
    high: float | None = None
    above: bool = False

    @property
    def limits(self) -> str:
        """See `ParamType`."""
        if self.low is None:
            return "a finite number"
        if self.high is None:
            return f"a finite number {'>' if self.above else '>='} {self.low:g}"
        return f"a number from {self.low:g} to {self.high:g}"

    def check(self, name: str, value: object) -> float:
        """See `ParamType`."""
        number = real(value)
        if (
            number is None
            or not math.isfinite(number)
            or (self.low is not None and (number < self.low or (self.above and number == self.low)))
            or (self.high is not None and number > self.high)
        ):
            raise InvalidSamplingParam(name, value, self.limits)
        return number


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer from `low` to `high`. note: of what values mean; none: what None means, where it is allowed."""

    low: int = 0
    high: int = COUNT_LIMIT
    note: str = ""
    none: str = ""

    @property
    def limits(self) -> str:
        """See `ParamType`."""
        high = "2**63 - 1" if self.high == COUNT_LIMIT else self.high
        note = f" ({self.note})" if self.note else ""
        return f"an integer from {self.low} to {high}{note}{self.or_none}"

    @property
    def or_none(self) -> str:
        """The end of the limits that speaks of None."""
        return f", or None for {self.none}" if self.none else ""

    def check(self, name: str, value: object) -> int | None:
        """See `ParamType`."""
        if value is None and self.none:
            return None
        number = whole(value)
        if number is None or not self.low <= number <= self.high:
            raise InvalidSamplingParam(name, value, self.limits)
        return number


@dataclass(frozen=True, slots=True)
class TokenBias:
    """A mapping from token ids to numbers, infinities included."""

    limits: str = "a mapping from token id (integer from 0 to 2**63 - 1) to a number or +-inf"

    def check(self, name: str, value: object) -> dict[int, float]:
        """See `ParamType`."""
        if not isinstance(value, Mapping):
            raise InvalidSamplingParam(name, value, self.limits)
        checked: dict[int, float] = {}
        for key, amount in value.items():
            token_id, number = whole(key), real(amount)
            if token_id is None or not 0 <= token_id <= COUNT_LIMIT or number is None or math.isnan(number):
                raise InvalidSamplingParam(name, {key: amount}, self.limits)
            checked[token_id] = number
        return checked


@dataclass(frozen=True, slots=True)
class Strings:
    """Strings that are not empty; one may be given without a list."""

    limits: str = "a string or an iterable of strings, none of them empty"

    def check(self, name: str, value: object) -> tuple[str, ...]:
        """See `ParamType`."""
        if isinstance(value, str):
            value = (value,)
        if isinstance(value, (bytes, bytearray, memoryview, Mapping)) or not isinstance(value, Iterable):
            raise InvalidSamplingParam(name, value, self.limits)
        strings = tuple(value)
        for string in strings:
            if not isinstance(string, str) or not string:
                raise InvalidSamplingParam(name, strings, self.limits)
        return strings


@dataclass(frozen=True, slots=True)
class TokenIds:
    """Token ids."""

    limits: str = "an iterable of token ids (integers from 0 to 2**63 - 1)"

    def check(self, name: str, value: object) -> tuple[int, ...]:
        """See `ParamType`."""
        if isinstance(value, (str, bytes, bytearray, memoryview, Mapping)) or not isinstance(value, Iterable):
            raise InvalidSamplingParam(name, value, self.limits)
        given = tuple(value)
        ids = tuple(i for i in map(whole, given) if i is not None and 0 <= i <= COUNT_LIMIT)
        if len(ids) != len(given):
            raise InvalidSamplingParam(name, given, self.limits)
        return ids


@dataclass(frozen=True, slots=True)
class Switch:
    """True or False."""

    limits: str = "True or False"

    def check(self, name: str, value: object) -> bool:
        """See `ParamType`."""
        if not isinstance(value, bool):
            raise InvalidSamplingParam(name, value, self.limits)
        return value


@dataclass(frozen=True, slots=True)
class Option:
    """How the command line gives a parameter.

    names: its options, "-n --predict" say; messages name the first long one. value: what help calls the value. default:
    the option's own, where that differs; -1 stands for None. stops: it is one of those that say when a text ends.
    server: `zinc serve` has it, as the default of requests. listed: run, chat and serve list it; False: `zinc run` has
    it in a place of its own.
    """

    names: str
    help: str
    value: str = ""
    default: int | None = None
    stops: bool = False
    server: bool = True
    listed: bool = True

    @property
    def name(self) -> str:
        """The first long name."""
        return next(name for name in self.names.split() if name.startswith("--"))


class Api(StrEnum):
    """An interface of servers by its author."""

    openai = "openai"
    """Completions of chats and texts."""
    responses = "responses"
    """OpenAI's responses."""
    anthropic = "anthropic"
    ollama = "ollama"
    """The `options` of its requests."""
    llamacpp = "llamacpp"
    """`/completion` and `/infill` of its server; `/props` shows the defaults by these names."""


_EVERY: Final = frozenset(Api)
LOCAL: Final = frozenset({Api.ollama, Api.llamacpp})
"""Those of llama.cpp and of what is made with it."""


@dataclass(frozen=True, slots=True)
class Json:
    """How requests give a parameter.

    note: what the docs say of the field; `{limits}` and `{default}` are filled in. kind: the limits in requests, where
    they are tighter. apis: the interfaces that take it; extends: those of them whose authors do not have it;
    the docs mark it *own*. names, kinds: the name and the limits in one interface, where they differ.
    """

    note: str
    apis: frozenset[Api]
    extends: frozenset[Api] = frozenset()
    kind: ParamType | None = None
    names: Mapping[Api, str] = field(default_factory=dict)
    kinds: Mapping[Api, ParamType] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A row of the table. option, json: None where the command line or no interface gives it as it is."""

    name: str
    default: Any
    kind: ParamType
    option: Option | None
    json: Json | None

    def json_name(self, api: Api) -> str:
        """The field's name in an interface."""
        return self.name if self.json is None else self.json.names.get(api, self.name)

    def is_ours(self, api: Api) -> bool:
        """Whether the interface's authors do not have the field."""
        return self.json is not None and api in self.json.extends

    def json_kind(self, api: Api) -> ParamType:
        """The limits in an interface."""
        json = self.json
        return self.kind if json is None else json.kinds.get(api) or json.kind or self.kind

    def json_note(self, api: Api) -> str:
        """What the docs of an interface say of the field."""
        kind = self.json_kind(api)
        low, high = (kind.low, kind.high) if isinstance(kind, Number) else (None, None)
        limits = "" if low is None or high is None else f"{low:g} to {high:g}"
        return "" if self.json is None else self.json.note.format(limits=limits, default=self.default)


def _parameter(default: Any, kind: ParamType, option: Option | None = None, json: Json | None = None) -> Any:
    """A field of `SamplingParams`."""
    row = {"kind": kind, "option": option, "json": json}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=row)
    return field(default=default, metadata=row)


_PENALTY: Final = Number(-2, 2)


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

    temperature: float = _parameter(
        0.8,
        Number(0),
        Option(
            "--temp --temperature",
            "Randomness: below 1 sharpens, above 1 flattens; 0 always takes the likeliest token.",
            "X",
        ),
        Json("{limits}; {default} where it is omitted", _EVERY, kind=Number(0, 2), kinds={Api.anthropic: Number(0, 1)}),
    )
    """Divides the logits before the draw; 0 takes the most likely token always (greedy)."""
    top_k: int = _parameter(
        40,
        Integer(note="0 keeps all tokens"),
        Option("--top-k", "Keep the N likeliest tokens; 0 keeps all.", "N"),
        Json(
            "keep the k likeliest tokens, 0 all; {default} where it is omitted",
            _EVERY,
            extends=frozenset({Api.openai, Api.responses}),
        ),
    )
    """Keep the k most likely tokens; 0 keeps all."""
    top_p: float = _parameter(
        0.95,
        Number(0, 1),
        Option("--top-p", "Keep the likeliest tokens whose probabilities sum to X (0 to 1); 1 keeps all.", "X"),
        Json("{limits}; {default} where it is omitted", _EVERY),
    )
    """Keep the most likely tokens whose probabilities sum to at least this; 1 keeps all."""
    min_p: float = _parameter(
        0.05,
        Number(0, 1),
        Option("--min-p", "Drop tokens less likely than X (0 to 1) times the likeliest one; 0 drops none.", "X"),
        Json(
            "drop tokens less likely than this share of the likeliest; {default} where it is omitted",
            _EVERY,
            extends=_EVERY - LOCAL,
        ),
    )
    """Drop tokens less likely than this share of the most likely token's probability; 0 drops none."""
    repetition_penalty: float = _parameter(
        1.0,
        Number(0, above=True),
        Option(
            "--repeat-penalty",
            "Divide the score of recent tokens by X if positive, multiply it if negative; 1 is off.",
            "X",
        ),
        Json(
            "divides the logits of recent tokens; 1, which is off, where it is omitted",
            LOCAL | {Api.openai},
            extends=frozenset({Api.openai}),
            kind=Number(0, 10, above=True),
            names=dict.fromkeys(LOCAL, "repeat_penalty"),
        ),
    )
    """Divides positive and multiplies other logits of recent tokens; 1 is off."""
    presence_penalty: float = _parameter(
        0.0,
        Number(),
        Option("--presence-penalty", "Subtract X from the score of every recent token; 0 is off.", "X"),
        Json("{limits}", LOCAL | {Api.openai}, kind=_PENALTY),
    )
    """Subtracted once from the logit of every recent token."""
    frequency_penalty: float = _parameter(
        0.0,
        Number(),
        Option(
            "--frequency-penalty",
            "Subtract X from the score of a recent token for each time it occurred; 0 is off.",
            "X",
        ),
        Json("{limits}", LOCAL | {Api.openai}, kind=_PENALTY),
    )
    """Subtracted from the logit of a recent token for each time it occurred."""
    repeat_last_n: int = _parameter(
        64,
        Integer(-1, note="0: none, -1: all"),
        Option(
            "--repeat-last-n", "How many tokens are recent for the penalties, prompt included; 0: none, -1: all.", "N"
        ),
        Json(
            "how many tokens are recent, prompt included; -1 all",
            LOCAL | {Api.openai},
            extends=frozenset({Api.openai}),
        ),
    )
    """How many tokens count as recent, prompt included; 0: none, -1: all."""
    logit_bias: Mapping[int, float] = _parameter(
        {},
        TokenBias(),
        Option(
            "-l --logit-bias",
            "Add X to (subtract it from) the score of token ID: 15+2.5; 15-inf forbids it. May be repeated.",
            "ID+X|ID-X",
            server=False,
        ),
        Json("at most 1,024 token ids", frozenset({Api.openai, Api.llamacpp})),
    )
    """Added to logits by token id; -inf forbids a token, +inf forces it."""
    seed: int | None = _parameter(
        None,
        Integer(high=SEED_LIMIT - 1, none="a random one"),
        Option(
            "-s --seed",
            "Same seed, same text; the line at the end names the one in use. -1: a random one.",
            "N",
            default=-1,
        ),
        Json(
            "the same seed, the same bytes; omitted: drawn, and named in `x-zinc-seed`",
            _EVERY,
            extends=frozenset({Api.responses, Api.anthropic}),
            kind=Integer(-SEED_LIMIT // 2, SEED_LIMIT - 1),
        ),
    )
    """Same seed, same text. None: the sampler draws one and exposes it as `Sampler.seed`."""
    max_tokens: int | None = _parameter(
        256,
        Integer(1, none="no limit but the context"),
        Option(
            "-n --predict --max-tokens",
            "Most tokens to generate; -1: until the model ends the text or the context is full.",
            "N",
            default=-1,
            stops=True,
        ),
    )
    """Most tokens to generate. None: until the model stops or the context is full."""
    stop: tuple[str, ...] = _parameter(
        (),
        Strings(),
        Option(
            "--stop",
            "End the text where TEXT would appear; TEXT itself is not printed. May be repeated.",
            "TEXT",
            stops=True,
            server=False,
        ),
    )
    """Strings that end the text; none of them is ever part of it."""
    stop_token_ids: tuple[int, ...] = _parameter(
        (),
        TokenIds(),
        json=Json(
            "token ids that end the text",
            frozenset({Api.openai, Api.llamacpp}),
            extends=frozenset({Api.openai, Api.llamacpp}),
        ),
    )
    """Token ids that end the text, besides the model's own."""
    logprobs: int | None = _parameter(
        None,
        Integer(none="off"),
        Option(
            "--logprobs",
            "With --json: log-probabilities of each token and of the N likeliest ones. Default: none.",
            "N",
            listed=False,
        ),
    )
    """None: none. n: log-probability of each chosen token and of the n most likely tokens."""
    ignore_eos: bool = _parameter(
        False,
        Switch(),
        Option("--ignore-eos", "Go on after the model's end-of-text token.", stops=True, server=False),
        Json(
            "go on after the model's end-of-text token",
            frozenset({Api.openai, Api.llamacpp}),
            extends=frozenset({Api.openai}),
        ),
    )
    """Go on after the model's end-of-text tokens (they are generated like any other)."""

    if TYPE_CHECKING:  # what may be given is more than what is kept

        def __init__(self, **fields: Unpack[SamplingOverrides]) -> None: ...

    def __post_init__(self) -> None:
        for row in PARAMETERS.values():
            object.__setattr__(self, row.name, row.kind.check(row.name, getattr(self, row.name)))

    @staticmethod
    def with_overrides(base: SamplingParams | None = None, /, **overrides: Unpack[SamplingOverrides]) -> SamplingParams:
        """`base` (None: the defaults) with some fields replaced, checked anew.

        Raises `UnknownParameter` for a keyword that is no field, `InvalidSamplingParam` for a bad value, `UsageError`
        for a base that is no `SamplingParams`.
        """
        if base is not None and not isinstance(base, SamplingParams):
            raise UsageError(f"params is {show(base)}, it must be a SamplingParams or None")
        if unknown := overrides.keys() - PARAMETERS.keys():
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


PARAMETERS: Final[Mapping[str, Parameter]] = {
    f.name: Parameter(f.name, {} if f.default is dataclasses.MISSING else f.default, **f.metadata)
    for f in dataclasses.fields(SamplingParams)
}
"""The table by name."""


def parameters_of(api: Api) -> list[Parameter]:
    """The rows of the parameters that an interface takes."""
    return [row for row in PARAMETERS.values() if row.json is not None and api in row.json.apis]
