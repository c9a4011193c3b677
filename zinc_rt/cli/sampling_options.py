"""The options that choose tokens and end a text, made from the table of parameters, and how a chat changes them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any

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


def _options() -> dict[str, Option]:
    """The options by the names of their parameters."""
    return {row.name: row.option for row in PARAMETERS.values() if row.option is not None}


def sampling_option(name: str, more: str = "", *, shows_default: bool = False, panel: str | None = None) -> Any:
    """The option of a parameter as the parser takes it. more: behind its help."""
    option = _options()[name]
    return typer.Option(
        *option.names.split(),
        metavar=option.value or None,
        help=option.help + more,
        rich_help_panel=panel or (o.LIMITS if option.stops else o.SAMPLING),
        show_default=shows_default,
    )


class SamplingOptions(OptionRecord):
    """Parameters of sampling from the command line. values: by the names of the parameters; a parameter without one has
    its own default.
    """

    def __init__(self, **values: Any) -> None:
        self.values = values

    @classmethod
    def options(cls) -> Iterator[OptionOf]:
        """See `OptionRecord`."""
        given = {name: option for name, option in _options().items() if cls.has(option)}
        for name, option in sorted(given.items(), key=lambda item: not item[1].stops):
            row = PARAMETERS[name]
            if isinstance(row.kind, (Number, Integer)):
                kind: Any = float if isinstance(row.kind, Number) else int
                made = sampling_option(name, shows_default=True)
                yield name, Annotated[kind, made], row.default if option.default is None else option.default
            elif isinstance(row.kind, Switch):
                yield name, Annotated[bool, sampling_option(name)], row.default
            else:
                yield name, Annotated[list[str] | None, sampling_option(name)], None

    @classmethod
    def has(cls, option: Option) -> bool:
        """Whether an option is one of these."""
        return option.listed

    def params(self, **more: Any) -> SamplingParams:
        """The checked parameters. more: parameters in the place of the options'. Raises `UsageError`, naming the
        option."""
        given = {name: _value(PARAMETERS[name], value) for name, value in self.values.items() if value is not None}
        with _by_option():
            return SamplingParams(**{**given, **more})


class ServerSampling(SamplingOptions):
    """The same for a server: the values for requests that leave them out."""

    @classmethod
    def has(cls, option: Option) -> bool:
        """See `SamplingOptions`."""
        return super().has(option) and option.server

    def params(self, **more: Any) -> SamplingParams:
        """See `SamplingOptions`; no seed is drawn, each request gets one of its own."""
        return super().params(**({"seed": None} if self.values["seed"] == -1 else {}), **more)


@contextmanager
def _by_option() -> Iterator[None]:
    """Errors of parameters with the names of options."""
    try:
        yield
    except InvalidSamplingParam as error:
        row, option = PARAMETERS[error.field], _options().get(error.field)
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


def _names(row: Parameter) -> list[str]:
    """All names of an option without their dashes, and the parameter's own."""
    options = [] if row.option is None else row.option.names.split()
    return [*(name.lstrip("-") for name in options), row.name.replace("_", "-")]


def settable() -> dict[str, Parameter]:
    """What `changed` may change, by the names that it has there."""
    return {
        option.name.removeprefix("--"): PARAMETERS[name]
        for name, option in _options().items()
        if option.listed and isinstance(PARAMETERS[name].kind, (Number, Integer))
    }


def settings(params: SamplingParams) -> str:
    """The parameters that `changed` may change, in a line."""
    shown = {name: getattr(params, row.name) for name, row in settable().items()}
    return ", ".join(f"{name} {-1 if value is None else value}" for name, value in shown.items())


def changed(params: SamplingParams, name: str, value: str) -> SamplingParams:
    """The parameters with another value of an option, whose name may lack its dashes. Raises `UsageError`."""
    rows = settable()
    said = name.removeprefix("--").replace("_", "-")
    shown = next((one for one, row in rows.items() if said in _names(row)), None)
    if shown is None:
        raise UsageError(f"{show(said)} cannot be set; there are: {', '.join(rows)}")
    row = rows[shown]
    kind = float if isinstance(row.kind, Number) else int
    try:
        number: float = kind(value)
    except ValueError:
        wanted = "number" if kind is float else "whole number"
        raise UsageError(f"{shown} is {show(value)}; it must be a {wanted}") from None
    given: dict[str, Any] = {row.name: _value(row, number)}
    with _by_option():
        return replace(params, **given)
