"""Models that were downloaded: what the hub's cache holds, whoever put it there."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from huggingface_hub import constants

from zinc_rt.errors import UsageError
from zinc_rt.hub.choose import RemoteFile, choose, models_of, projector_for, quant_of
from zinc_rt.hub.errors import HubError, NoSuchFile
from zinc_rt.hub.known import KNOWN
from zinc_rt.hub.reference import HubModel

_FOLDER: Final = re.compile(r"models--([^-].*?)--(.+)")


@dataclass(frozen=True)
class CachedModel:
    """A model in the cache, with all of its parts.

    name: what to write for it, the table's name where there is one; quant: the format by its name, empty where it tells
    none; snapshot: the folder of the repository at one moment; paths: the first part first; size: bytes; projector: the
    file that makes it read pictures, None for none.
    """

    name: str
    repo: str
    quant: str
    snapshot: Path
    paths: Sequence[Path]
    size: int
    projector: Path | None = None

    @property
    def path(self) -> Path:
        """The file to open."""
        return self.paths[0]

    @property
    def file(self) -> str:
        """The path of the first part inside the repository."""
        return self.path.relative_to(self.snapshot).as_posix()


def cache_folder() -> Path:
    """The hub's cache: HF_HUB_CACHE, else `hub` in HF_HOME, else in ~/.cache/huggingface."""
    return Path(constants.HF_HUB_CACHE)


def cached_models() -> list[CachedModel]:
    """All of them, by repository and size; models with missing parts are left out."""
    found: dict[tuple[str, str], CachedModel] = {}
    for folder in sorted(cache_folder().glob("models--*--*")):
        match = _FOLDER.fullmatch(folder.name)
        if match is None:
            continue
        repo = f"{match[1]}/{match[2]}"
        base = next((name for name, model in KNOWN.items() if model.repo == repo), repo)
        for snapshot in _snapshots(folder):
            files = [
                RemoteFile(path.relative_to(snapshot).as_posix(), path.stat().st_size)
                for path in sorted(snapshot.rglob("*.gguf"))
                if path.is_file()
            ]
            for first, parts in models_of(files).items():
                paths, quant = [snapshot / part.path for part in parts], quant_of(first)
                name = f"{base}:{quant}" if quant else base
                beside = projector_for(first, files)
                projector = None if beside is None else snapshot / beside.path
                size = sum(part.size for part in parts)
                model = CachedModel(name, repo, quant, snapshot, paths, size, projector)
                found.setdefault((repo, first), model)
    models = sorted(found.values(), key=lambda model: (model.repo.lower(), model.size))
    names, repos = Counter(model.name for model in models), Counter(model.repo for model in models)
    return [
        model
        if names[model.name] == 1 and (model.quant or repos[model.repo] == 1)
        else replace(model, name=f"{model.repo}/{model.file}")
        for model in models
    ]


def _snapshots(folder: Path) -> list[Path]:
    """Of one repository, the newest first."""
    snapshots = [path for path in (folder / "snapshots").glob("*") if path.is_dir()]
    return sorted(snapshots, key=lambda path: -path.stat().st_mtime)


def find(wanted: HubModel) -> CachedModel | None:
    """The model in the cache, in the format that was asked for, else the one that `zinc pull` would take."""
    here = _of(wanted)
    files = [RemoteFile(str(path.relative_to(m.snapshot)), path.stat().st_size) for m in here for path in m.paths]
    try:
        first = choose(wanted, files)[0].path
    except NoSuchFile:
        return None
    return next(model for model in here if model.file == first)


def _of(wanted: HubModel) -> list[CachedModel]:
    return [model for model in cached_models() if model.repo.lower() == wanted.repo.lower()]


def find_one(wanted: HubModel) -> CachedModel:
    """The model that a name means without doubt. Raises `HubError`, and `UsageError` where several have it."""
    model, here = find(wanted), _of(wanted)
    if model is None:
        raise HubError(f"{wanted} is not downloaded; `zinc list` shows what is")
    if len(here) > 1 and not wanted.quant and not wanted.file:
        raise UsageError(f"{wanted} is downloaded more than once: name one of {', '.join(m.name for m in here)}")
    return model


def remove(model: CachedModel) -> int:
    """Delete a model's files from the cache, in all snapshots; the bytes that this frees. Its projector goes with the
    last model of the repository.

    Nothing outside of the repository's folder is touched: of a link that leads out of it, the link is deleted.
    """
    folder = model.snapshot.parent.parent
    freed = 0
    paths = [*model.paths]
    if model.projector is not None and len([m for m in cached_models() if m.repo == model.repo]) == 1:
        paths.append(model.projector)
    blobs = {_target(path) for path in paths}
    for path in [path for path in (folder / "snapshots").rglob("*") if path.is_symlink() or path.is_file()]:
        if path in paths or _target(path) in blobs:
            freed += 0 if path.is_symlink() else path.stat().st_size
            path.unlink()
    for blob in blobs:
        if os.path.realpath(blob.parent) == os.path.realpath(folder / "blobs") and os.path.lexists(blob):
            freed += blob.lstat().st_size
            blob.unlink()
    for path in sorted((folder / "snapshots").rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
            path.rmdir()
    return freed


def _target(path: Path) -> Path:
    """What a snapshot's link names, a path of its own for a file. Links are not followed any further."""
    return Path(os.path.normpath(path.parent / path.readlink())) if path.is_symlink() else path
