"""The head of a model's file, without its weights: enough to say whether it runs and what it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from huggingface_hub import get_session, hf_hub_url
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from zinc_rt.gguf import GGUFError, GGUFFile
from zinc_rt.hub.choose import RemoteFile
from zinc_rt.hub.remote import Repository, readable_errors

_STRETCHES: Final = (2 << 20, 8 << 20, 32 << 20)
"""Bytes of a file's beginning that are asked for; a vocabulary of 262,144 tokens takes 7 MB."""
_PARTIAL: Final = 206


def preview(repository: Repository, file: RemoteFile, folder: Path) -> Path | None:
    """A file of the right size in `folder` whose directory is the model's and whose weights are holes.

    None where the server gives no part of a file, or the directory is longer than 32 MB. Raises `HubError`.
    """
    path = folder / "preview.gguf"
    url = hf_hub_url(repository.repo, file.path, revision=repository.commit)
    got = 0
    with path.open("wb") as out, readable_errors(repository.repo):
        out.truncate(file.size)
        for end in _STRETCHES:
            headers = {**build_hf_headers(library_name="zinc_rt"), "Range": f"bytes={got}-{end - 1}"}
            with get_session().stream("GET", url, headers=headers, follow_redirects=True) as answer:
                if answer.status_code != _PARTIAL:
                    return None
                got += out.write(answer.read()[: end - got])
            out.flush()
            try:
                GGUFFile.open(path).close()
            except GGUFError:
                if got >= file.size:
                    return None
                continue
            return path
    return None
