"""The options that choose tokens and end a text, made from the table of parameters, and how a chat changes them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any, Final

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.option_records import OptionOf, OptionRecord
from zinc_rt.errors import UsageError
from zinc_rt.sampling.params import (
    PARAMETERS,
    Integer,
    InvalidSamplingParam,
    Number,
    Option,
    Parameter,
    SamplingParams,
    Strings,
    Switch,
    TokenBias,
)
from zinc_rt.utils.checks import show

_OPTIONS: Final = {row.name: row.option for row in PARAMETERS.values() if row.option is not None}


def sampling_option(name: str, more: str = "", *, shows_default: bool = False, panel: str | None = None) -> Any:
    """The option of a parameter as the parser takes it. more: behind its help."""
    option = _OPTIONS[name]
    return typer.Option(
        *option.names.split(),
        metavar=option.value or None,
        help=option.help + more,
        rich_help_panel=panel or (o.LIMITS if option.stops else o.SAMPLING),
        show_default=shows_default,
    )


class SamplingOptions(OptionRecord):
    """What the options say of sampling. values: by the names of the parameters; a parameter without one has its own
    default."""

    def __init__(self, **values: Any) -> None:
        self.values = values

    @classmethod
    def options(cls) -> Iterator[OptionOf]:
        """See `OptionRecord`."""
        for name in sorted(filter(cls.has, _OPTIONS), key=lambda name: not _OPTIONS[name].stops):
            row, option = PARAMETERS[name], _OPTIONS[name]
            if isinstance(row.kind, (Number, Integer)):
                kind: Any = float if isinstance(row.kind, Number) else int
                made = sampling_option(name, shows_default=True)
                yield name, Annotated[kind, made], row.default if option.default is None else option.default
            elif isinstance(row.kind, Switch):
                yield name, Annotated[bool, sampling_option(name)], row.default
            else:
                yield name, Annotated[list[str] | None, sampling_option(name)], None

    @classmethod
    def has(cls, name: str) -> bool:
        """Whether the option of a parameter is one of these."""
        return _OPTIONS[name].listed

    def params(self, **more: Any) -> SamplingParams:
        """The checked parameters. more: parameters in the place of the options'. Raises `UsageError`, naming the
        option."""
        given = {name: _value(PARAMETERS[name], value) for name, value in self.values.items() if value is not None}
        with _by_option():
            return SamplingParams(**{**given, **more})


class ServerSampling(SamplingOptions):
    """The same for a server: what holds for requests that do not say."""

    @classmethod
    def has(cls, name: str) -> bool:
        """See `SamplingOptions`."""
        return super().has(name) and _OPTIONS[name].server

    def params(self, **more: Any) -> SamplingParams:
        """See `SamplingOptions`; no seed is drawn, each request gets one of its own."""
        return super().params(**({"seed": None} if self.values["seed"] == -1 else {}), **more)


@contextmanager
def _by_option() -> Iterator[None]:
    """Errors of parameters with the names of options."""
    try:
        yield
    except InvalidSamplingParam as error:
        row, option = PARAMETERS[error.field], _OPTIONS.get(error.field)
        limits = error.limits
        if isinstance(row.kind, Integer):
            limits = limits.removesuffix(row.kind.or_none)
            limits += f" (-1 for {row.kind.none})" if option is not None and option.default == -1 else ""
        flag = error.field if option is None else option.name
        raise UsageError(f"{flag} is {error.value!r}; it must be {limits}") from None


def _value(row: Parameter, given: Any) -> Any:
    """A parameter by what its option was given."""
    if isinstance(row.kind, Strings):
        return tuple(given)
    if isinstance(row.kind, TokenBias):
        return dict(map(_bias, given))
    if given == -1 and row.option is not None and row.option.default == -1:
        return drawn_seed() if row.name == "seed" else None
    return given


def drawn_seed() -> int:
    """A random seed, drawn here so that it can be shown."""
    return int.from_bytes(os.urandom(4), "little")


def _bias(text: str) -> tuple[int, float]:
    """`15+2.5`, `15-1`, `15-inf` as (15, 2.5), (15, -1.0), (15, -inf)."""
    parts = re.fullmatch(r"(\d+)([+-].+)", text)
    try:
        if parts is None:
            raise ValueError
        return int(parts[1]), float(parts[2])
    except ValueError:
        raise UsageError(f"--logit-bias is {text!r}; it must look like 15+2.5, 15-1 or 15-inf") from None


def _names(name: str, option: Option) -> Iterator[str]:
    """All names of an option without their dashes, the first long one first, and the parameter's own."""
    yield option.name.removeprefix("--")
    yield from (one.lstrip("-") for one in option.names.split())
    yield name.replace("_", "-")


_SETTABLE: Final = {
    name: option for name, option in _OPTIONS.items()
    if option.listed and isinstance(PARAMETERS[name].kind, (Number, Integer))
}  # fmt: skip
_SETTINGS: Final = {option.name.removeprefix("--"): name for name, option in _SETTABLE.items()}
_BY_ANY_NAME: Final = {any_name: name for name, option in _SETTABLE.items() for any_name in _names(name, option)}


def settings(params: SamplingParams) -> str:
    """The parameters that `changed` may change, in a line."""
    shown = {name: getattr(params, field) for name, field in _SETTINGS.items()}
    return ", ".join(f"{name} {-1 if value is None else value}" for name, value in shown.items())


def changed(params: SamplingParams, name: str, value: str) -> SamplingParams:
    """The parameters with another value of an option, whose name may lack its dashes. Raises `UsageError`."""
    name = name.removeprefix("--").replace("_", "-")
    if name not in _BY_ANY_NAME:
        raise UsageError(f"{show(name)} cannot be set; there are: {', '.join(_SETTINGS)}")
    row = PARAMETERS[_BY_ANY_NAME[name]]
    shown = _SETTABLE[row.name].name.removeprefix("--")
    kind = float if isinstance(row.kind, Number) else int
    try:
        number: float = kind(value)
    except ValueError:
        wanted = "number" if kind is float else "whole number"
        raise UsageError(f"{shown} is {show(value)}; it must be a {wanted}") from None
    given: dict[str, Any] = {row.name: _value(row, number)}
    with _by_option():
        return replace(params, **given)
