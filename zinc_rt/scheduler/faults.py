"""The kinds of errors that end one request. It is imported when there is one, so that it costs no start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from zinc_rt.adapters.errors import UnknownAdapter
from zinc_rt.engine.prompts import EmptyPrompt, PromptTooLong
from zinc_rt.errors import ZincError
from zinc_rt.grammar.errors import GrammarError
from zinc_rt.kernels.errors import TokenOutOfRange
from zinc_rt.sampling.params import InvalidSamplingParam
from zinc_rt.sampling.sampler import DegenerateLogits
from zinc_rt.scheduler.errors import (
    DuplicateRequest,
    GrammarMismatch,
    GrammarUnavailable,
    PicturesUnavailable,
    PromptNeverFits,
    TooManyTenants,
)
from zinc_rt.scheduler.messages import Failed, Fault, Usage

FAULTS: Final[Mapping[type[ZincError], Fault]] = {
    EmptyPrompt: Fault.empty_prompt,
    PromptTooLong: Fault.prompt_too_long,
    TokenOutOfRange: Fault.token_out_of_range,
    PromptNeverFits: Fault.prompt_never_fits,
    InvalidSamplingParam: Fault.invalid_sampling_param,
    GrammarError: Fault.grammar_error,
    GrammarUnavailable: Fault.grammar_unavailable,
    PicturesUnavailable: Fault.pictures_unavailable,
    GrammarMismatch: Fault.grammar_mismatch,
    UnknownAdapter: Fault.unknown_adapter,
    DuplicateRequest: Fault.duplicate_request,
    TooManyTenants: Fault.too_many_tenants,
    DegenerateLogits: Fault.degenerate_logits,
}
"""Errors that end one request, by class."""


def failed(request_id: str, error: ZincError, usage: Usage | None = None) -> Failed:
    """The event of a request that an error ends."""
    fault = next((FAULTS[kind] for kind in type(error).__mro__ if kind in FAULTS), Fault.engine_error)
    return Failed(request_id, fault, str(error), usage)
