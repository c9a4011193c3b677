"""What the hub says of a repository: its files and their sizes. Settings are the hub library's own, as HF_ENDPOINT."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import httpx2
from huggingface_hub import HfApi, constants, errors

from zinc_rt.hub.choose import RemoteFile
from zinc_rt.hub.errors import AccessDenied, HubError, HubUnreachable, RepositoryMissing

_DENIED = (401, 403)
_SLOW_DOWN = 429


@dataclass(frozen=True)
class Repository:
    """A repository at one moment. commit: 40 hex digits; gated: whether its terms have to be accepted first."""

    repo: str
    commit: str
    files: Sequence[RemoteFile]
    license: str = ""
    gated: bool = False


def look_up(repo: str) -> Repository:
    """The repository's newest state. Raises `RepositoryMissing`, `AccessDenied`, `HubUnreachable`, `HubError`."""
    with readable_errors(repo):
        if constants.is_offline_mode():
            raise errors.OfflineModeIsEnabled
        about = HfApi(library_name="zinc_rt").model_info(repo, files_metadata=True)
    files = [
        RemoteFile(s.rfilename, s.size or 0, s.lfs.sha256 if s.lfs is not None else "") for s in about.siblings or ()
    ]
    card = about.card_data
    return Repository(repo, about.sha or "", files, str((card and card.get("license")) or ""), bool(about.gated))


@contextmanager
def readable_errors(repo: str) -> Iterator[None]:
    """The hub library's errors as ours, in one line with what to do."""
    where = f"{constants.ENDPOINT}/{repo}"
    try:
        yield
    except errors.GatedRepoError:
        raise AccessDenied(
            f"{repo} wants its terms accepted: open {where}, accept, then set HF_TOKEN to a token of your account"
        ) from None
    except errors.RepositoryNotFoundError:
        raise RepositoryMissing(
            f"the hub shows no repository {repo}: check the name; a private one needs a token in HF_TOKEN"
        ) from None
    except errors.OfflineModeIsEnabled:
        raise HubUnreachable(f"{repo} is not in the cache, and HF_HUB_OFFLINE forbids to ask the hub") from None
    except errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        if status in _DENIED:
            raise AccessDenied(f"the hub denies {repo} ({status}): set HF_TOKEN to a token that may read it") from None
        if status == _SLOW_DOWN:
            wait = error.response.headers.get("Retry-After", "")
            later = f" in {wait} s" if wait.isdecimal() else " later"
            raise HubUnreachable(f"the hub asks to slow down (429): try again{later}, or set HF_TOKEN") from None
        raise HubError(f"the hub answered {status or 'nonsense'} for {repo}: try again later") from None
    except (httpx2.HTTPError, ConnectionError) as error:
        reason = str(error) or type(error).__name__
        raise HubUnreachable(
            f"{constants.ENDPOINT} does not answer ({reason}): check the network and HTTPS_PROXY, or name a mirror in"
            " HF_ENDPOINT"
        ) from None
