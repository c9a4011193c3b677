"""Logits processors: functions of the caller that change a text's logits before its next token is chosen.

def no_e(token_ids, logits):
    logits[ids_with_e] = -np.inf
    return logits

model.generate("Once upon a time", logits_processors=[no_e])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from zinc_rt.errors import UsageError
from zinc_rt.sampling.sampler import NoToken
from zinc_rt.utils.checks import show
from zinc_rt.utils.interrupts import Breakable

LogitsProcessor = Callable[[list[int], npt.NDArray[np.float32]], npt.ArrayLike]
"""Gets the token ids of prompt and text so far, and the logits f32[n_vocab], which it may change; returns logits of the
same shape. It is called on the thread that runs the step, once for each token, and once more for a token whose step was
interrupted.
"""
Processors = tuple[LogitsProcessor, ...]


class ProcessorFailed(NoToken):
    """A logits processor raised an exception, `error`, or returned no logits."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"a logits processor failed: {type(error).__name__}: {error}")
        self.error = error


def check_processors(value: object) -> Processors:
    """The functions of an argument `logits_processors`. Raises `UsageError` for what is no sequence of functions."""
    if callable(value) or not isinstance(value, Iterable):
        raise UsageError(f"logits_processors is {show(value)}; give a list of functions")
    found = tuple(value)
    for function in found:
        if not callable(function):
            raise UsageError(f"logits_processors has {show(function)}, which is no function")
    return found


def process(processors: Processors, history: Sequence[int], logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """What the functions, each after the other, make of logits f32[n_vocab], which stay as they are.

    history: token ids so far. Raises `ProcessorFailed`.
    """
    changed = logits.copy()
    for function in processors:
        try:
            with Breakable():  # the caller's code may take for ever
                made = function(list(history), changed)
            changed = _logits(function, made, logits.shape)
        except Exception as error:
            raise ProcessorFailed(error) from error
    return changed


def _logits(function: LogitsProcessor, value: Any, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    name = getattr(function, "__name__", type(function).__name__)
    if value is None:
        raise UsageError(f"the logits processor {name} returned None; return the logits")
    made = np.asarray(value)
    if made.shape != shape or made.dtype.kind not in "fiu":
        raise UsageError(
            f"the logits processor {name} returned {made.dtype} of shape {made.shape}; return numbers of shape {shape}"
        )
    return np.ascontiguousarray(made, np.float32)
