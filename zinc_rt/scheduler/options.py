"""How an `EngineCore` runs, and what it knows of the model's vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from zinc_rt.errors import UsageError
from zinc_rt.sampling.sampler import Mask
from zinc_rt.scheduler.messages import MAX_TENANTS, Grammar
from zinc_rt.utils.checks import real, show, whole_between


class GrammarMatcher(Protocol):
    """A grammar's state in one text. Its methods may raise a `ZincError` where the grammar takes too much work."""

    @property
    def is_free(self) -> bool:
        """Whether the grammar has not begun: every token may come."""
        ...

    @property
    def is_done(self) -> bool:
        """Whether nothing but a stop token may follow."""
        ...

    def fill_mask(self, out: Mask) -> None:
        """Write which tokens may come next."""
        ...

    def consume(self, token_id: int) -> bool:
        """The token was chosen; False where it does not fit."""
        ...

    def copy(self) -> GrammarMatcher:
        """Another one in the same state, to look ahead with."""
        ...


@dataclass(frozen=True, slots=True)
class CoreVocabulary:
    """The model's vocabulary, as far as the core needs it.

    n_vocab: how many there are. stop_ids: those that end a text. grammar: compiles a grammar; None where grammars are
    not to be had. It raises a `ZincError` for a bad one.
    """

    n_vocab: int
    stop_ids: frozenset[int] = frozenset()
    grammar: Callable[[Grammar], GrammarMatcher] | None = None


@dataclass(frozen=True, slots=True)
class CoreOptions:
    """How the loop of steps runs.

    max_step_ms: the milliseconds of a step while texts are generated; prompts get the time that decoding leaves, and
    half of decoding's time at the least.
    max_prefill_ms: the milliseconds of a step with prompts only. max_tenants: names of tenants that may be known at
    once.
    """

    max_step_ms: float = 60.0
    max_prefill_ms: float = 500.0
    max_tenants: int = MAX_TENANTS

    def __post_init__(self) -> None:
        for name in ("max_step_ms", "max_prefill_ms"):
            value = real(getattr(self, name))
            if value is None or not value > 0:
                raise UsageError(f"{name} is {show(getattr(self, name))}, it must be a number above 0")
        whole_between("max_tenants", self.max_tenants, 1, 65536)
