"""Errors of the hub: what was asked for, what the hub said, what to do."""

from __future__ import annotations

from zinc_rt.errors import UsageError, ZincError


class UnknownModel(UsageError):
    """A name that is in no table, and no `owner/repo` either."""


class HubError(ZincError):
    """The hub, or the way to it, failed."""


class RepositoryMissing(HubError):
    """The hub knows no such repository, or does not show it without a token."""


class AccessDenied(HubError):
    """The repository wants a token, or its terms accepted."""


class HubUnreachable(HubError):
    """No answer from the hub, or offline mode."""


class NoSuchFile(HubError):
    """The repository has no GGUF file of the wanted format."""


class DownloadFailed(HubError):
    """A transfer broke off, or what arrived is not what the hub announced."""


class NotDownloaded(HubError):
    """The model is not in the cache."""
