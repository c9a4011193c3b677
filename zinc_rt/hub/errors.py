"""Errors of the hub: what was asked for, what the hub said, what to do."""

from __future__ import annotations

from zinc_rt.errors import UsageError, ZincError


class UnknownModel(UsageError):
    """A text that is no file, no known name, and no address of a repository."""


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
    """The disk cannot take the file, or what arrives is not what the hub announced."""


class CannotRun(HubError):
    """This version cannot run the model, which is therefore not downloaded."""


class NotDownloaded(HubError):
    """The model is not in the cache."""
