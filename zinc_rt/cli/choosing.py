"""Parameters of sampling from the values of options, and how a chat changes them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from zinc_rt.errors import UsageError
from zinc_rt.sampling.params import InvalidSamplingParam, SamplingParams
from zinc_rt.utils.checks import show

_FLAGS: Final = {
    "temperature": "--temp",
    "top_k": "--top-k",
    "top_p": "--top-p",
    "min_p": "--min-p",
    "repetition_penalty": "--repeat-penalty",
    "presence_penalty": "--presence-penalty",
    "frequency_penalty": "--frequency-penalty",
    "repeat_last_n": "--repeat-last-n",
    "logit_bias": "--logit-bias",
    "seed": "--seed",
    "max_tokens": "--predict",
    "stop": "--stop",
    "logprobs": "--logprobs",
}


@contextmanager
def _by_option() -> Iterator[None]:
    """Errors of parameters with the names of options."""
    try:
        yield
    except InvalidSamplingParam as error:
        flag = _FLAGS.get(error.field, error.field)
        more = " (-1 for a random one)" if error.field == "seed" else ""
        more = " (-1 for no limit but the context)" if error.field == "max_tokens" else more
        limits = error.limits.split(", or None")[0]
        raise UsageError(f"{flag} is {error.value!r}; it must be {limits}{more}") from None


def _seed(given: int) -> int:
    """A seed, drawn here for -1, so that it can be shown."""
    return int.from_bytes(os.urandom(4), "little") if given == -1 else given


def sampling_params(
    *, max_tokens: int, seed: int, stop: list[str] | None, logit_bias: list[str] | None, **fields: Any
) -> SamplingParams:
    """Checked parameters from option values. Raises `UsageError`, naming the option."""
    with _by_option():
        return SamplingParams(
            max_tokens=None if max_tokens == -1 else max_tokens,
            seed=_seed(seed),
            stop=tuple(stop or ()),
            logit_bias=dict(map(_bias, logit_bias or ())),
            **fields,
        )


_SETTINGS: Final = {
    flag.removeprefix("--"): field for field, flag in _FLAGS.items() if field not in ("stop", "logit_bias", "logprobs")
}
_SAME_SETTINGS: Final = {"temperature": "temp", "repetition-penalty": "repeat-penalty", "max-tokens": "predict",
                         "n": "predict"}  # fmt: skip


def settings(params: SamplingParams) -> str:
    """The parameters that `changed` may change, in a line."""
    shown = {name: getattr(params, field) for name, field in _SETTINGS.items()}
    return ", ".join(f"{name} {-1 if value is None else value}" for name, value in shown.items())


def changed(params: SamplingParams, name: str, value: str) -> SamplingParams:
    """The parameters with another value of an option, whose name may lack its dashes. Raises `UsageError`."""
    name = name.removeprefix("--").replace("_", "-")
    name = _SAME_SETTINGS.get(name, name)
    if name not in _SETTINGS:
        raise UsageError(f"{show(name)} cannot be set; there are: {', '.join(_SETTINGS)}")
    field = _SETTINGS[name]
    kind = float if isinstance(getattr(SamplingParams, field), float) else int
    try:
        number: float | None = kind(value)
    except ValueError:
        wanted = "number" if kind is float else "whole number"
        raise UsageError(f"{name} is {show(value)}; it must be a {wanted}") from None
    if field == "seed":
        number = _seed(int(value))
    elif field == "max_tokens" and number == -1:
        number = None
    given: dict[str, Any] = {field: number}
    with _by_option():
        return replace(params, **given)


def _bias(text: str) -> tuple[int, float]:
    """`15+2.5`, `15-1`, `15-inf` as (15, 2.5), (15, -1.0), (15, -inf)."""
    parts = re.fullmatch(r"(\d+)([+-].+)", text)
    try:
        if parts is None:
            raise ValueError
        return int(parts[1]), float(parts[2])
    except ValueError:
        raise UsageError(f"--logit-bias is {text!r}; it must look like 15+2.5, 15-1 or 15-inf") from None
