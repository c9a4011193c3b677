"""Finds the file of a model that a user names: one rule for `-m`, file arguments and `zinc_rt.load`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from zinc_rt.hub.errors import HubError, UnknownModel

AUTO: Final = "auto"
"""As `mmproj`: the projector that lies beside the model, where one does and fits."""


def model_path(text: str) -> str:
    """The file that a text names: a path, or a downloaded model by any name that `zinc pull` takes.

    A path where no file is comes back as it is, for whoever opens it to tell.

    Raises:
        HubError: a model that is not here, with the command that downloads it.
        UnknownModel: neither a file nor a model, with what was meant perhaps.
    """
    if os.path.lexists(text) or _is_path(text):
        return text
    from zinc_rt.hub.cached import cached_models, find
    from zinc_rt.hub.reference import parse

    try:
        wanted = parse(text)
    except UnknownModel:
        if text.lower().endswith(".gguf"):
            return text
        wanted = parse(text, [model.name for model in cached_models()])  # raises with more to propose
    found = find(wanted)
    if found is not None:
        return str(found.path)
    if wanted.file and "://" not in text and ":/" not in text:
        return text
    raise HubError(f'{wanted} is not downloaded: zinc pull {wanted} (in Python zinc_rt.pull("{wanted}"))')


def _is_path(text: str) -> bool:
    """Whether a text can be nothing but a path."""
    return text.startswith(("/", "./", "../", "~")) or text in (".", "..") or "\0" in text


def projectors_beside(model: str | Path) -> Sequence[Path]:
    """What may be the projector of a model's file, of the files in its folder; the likeliest is first."""
    from zinc_rt.hub.choose import RemoteFile, projectors_for

    folder, name = os.path.split(os.path.abspath(model))
    try:
        names = [entry.name for entry in os.scandir(folder) if entry.name.lower().endswith(".gguf")]
    except OSError:
        return ()
    found = projectors_for(name, [RemoteFile(other, 0) for other in names if other != name])
    return [Path(folder, file.path) for file in found]
