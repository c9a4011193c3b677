"""Errors of the engine's side of serving."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from zinc_rt.errors import IntegrityError, UsageError, ZincError
from zinc_rt.grammar.errors import GrammarError
from zinc_rt.kernels.errors import TokenOutOfRange
from zinc_rt.prompts import EmptyPrompt, PromptTooLong
from zinc_rt.sampling.params import InvalidSamplingParam
from zinc_rt.sampling.sampler import DegenerateLogits
from zinc_rt.sched.errors import TooManyTenants
from zinc_rt.serving.messages import Fault


class CoreIntegrityError(IntegrityError):
    """The loop of steps has broken one of its own rules: a defect, not a bad request."""


class DuplicateRequest(UsageError):
    """A request has the id of another one that runs."""


class PromptNeverFits(UsageError):
    """A prompt needs more KV pages than its tenant may ever have."""


class GrammarUnavailable(UsageError):
    """A request has a grammar, and the engine was opened without grammars."""


class GrammarMismatch(ZincError):
    """A token does not fit the grammar of its request."""


FAULTS: Final[Mapping[type[ZincError], Fault]] = {
    EmptyPrompt: Fault.empty_prompt,
    PromptTooLong: Fault.prompt_too_long,
    TokenOutOfRange: Fault.token_out_of_range,
    PromptNeverFits: Fault.prompt_never_fits,
    InvalidSamplingParam: Fault.invalid_sampling_param,
    GrammarError: Fault.grammar_error,
    GrammarUnavailable: Fault.grammar_unavailable,
    GrammarMismatch: Fault.grammar_mismatch,
    DuplicateRequest: Fault.duplicate_request,
    TooManyTenants: Fault.too_many_tenants,
    DegenerateLogits: Fault.degenerate_logits,
}
"""Errors that end one request, by class."""


def fault_of(error: ZincError) -> Fault:
    """The kind of an error that ends a request."""
    return next((FAULTS[kind] for kind in type(error).__mro__ if kind in FAULTS), Fault.engine_error)
