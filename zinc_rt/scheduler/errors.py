"""Errors of the scheduler. Each ends one request, but for `IntegrityError`."""

from __future__ import annotations

from zinc_rt.errors import UsageError, ZincError


class TooManyTenants(ZincError):
    """All places for tenants are taken."""


class DuplicateRequest(UsageError):
    """A request has the id of another one that runs."""


class PromptNeverFits(UsageError):
    """A prompt needs more KV pages than its tenant may ever have."""


class PicturesUnavailable(UsageError):
    """A request has pictures, and the engine was opened without a projector."""


class GrammarUnavailable(UsageError):
    """A request has a grammar, and the engine was opened without grammars."""


class GrammarMismatch(ZincError):
    """A token does not fit the grammar of its request."""
