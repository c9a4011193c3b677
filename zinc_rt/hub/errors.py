"""Errors of the hub: each names the request, the hub's answer and the remedy."""

from __future__ import annotations

from zinc_rt.errors import UsageError, ZincError


class UnknownModel(UsageError):
    """A text that is no file, no known name, and no address of a repository."""


class HubError(ZincError):
    """The hub, or the way to it, failed."""


class HubUnreachable(HubError):
    """No answer from the hub, or offline mode."""


class NoSuchFile(HubError):
    """The repository has no GGUF file of the wanted format."""
