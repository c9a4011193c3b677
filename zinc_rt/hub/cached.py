"""Models that were downloaded: what the hub's cache holds, whoever put it there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zinc_rt.hub.choose import RemoteFile, choose, models_of, quant_of
from zinc_rt.hub.download import cache_folder
from zinc_rt.hub.errors import NoSuchFile, NotDownloaded
from zinc_rt.hub.known import KNOWN
from zinc_rt.hub.reference import Wanted

_FOLDER: Final = re.compile(r"models--([^-].*?)--(.+)")


@dataclass(frozen=True)
class CachedModel:
    """A model in the cache, with all of its parts.

    quant: the format by its name, empty where it tells none; paths: the first part first; size: bytes; used: seconds
    since the epoch at which it was read last, as far as the file system says.
    """

    repo: str
    quant: str
    paths: Sequence[Path]
    size: int
    used: float

    @property
    def path(self) -> Path:
        """The file to open."""
        return self.paths[0]

    @property
    def name(self) -> str:
        """What to write for it: a name of the table where there is one."""
        known = next((name for name, model in KNOWN.items() if model.repo == self.repo), self.repo)
        return f"{known}:{self.quant}" if self.quant else known


def cached_models() -> list[CachedModel]:
    """All of them, by repository and size; models with missing parts are left out."""
    found: dict[tuple[str, str], CachedModel] = {}
    for folder in sorted(cache_folder().glob("models--*--*")):
        match = _FOLDER.fullmatch(folder.name)
        if match is None:
            continue
        repo = f"{match[1]}/{match[2]}"
        for snapshot in _snapshots(folder):
            files = [
                RemoteFile(str(path.relative_to(snapshot)), path.stat().st_size)
                for path in sorted(snapshot.rglob("*.gguf"))
                if path.is_file()
            ]
            for first, parts in models_of(files).items():
                paths = [snapshot / part.path for part in parts]
                used = max(path.stat().st_atime for path in paths)
                model = CachedModel(repo, quant_of(first), paths, sum(part.size for part in parts), used)
                found.setdefault((repo, first), model)
    return sorted(found.values(), key=lambda model: (model.repo.lower(), model.size))


def _snapshots(folder: Path) -> list[Path]:
    """Of one repository, the newest first."""
    snapshots = [path for path in (folder / "snapshots").glob("*") if path.is_dir()]
    return sorted(snapshots, key=lambda path: -path.stat().st_mtime)


def find(wanted: Wanted) -> CachedModel | None:
    """The model in the cache, in the format that was asked for, else the one that `zinc pull` would take."""
    here = [model for model in cached_models() if model.repo.lower() == wanted.repo.lower()]
    files = [RemoteFile(str(path), path.stat().st_size) for model in here for path in model.paths]
    try:
        first = choose(wanted, files)[0].path
    except NoSuchFile:
        return None
    return next(model for model in here if str(model.path) == first)


def find_or_refuse(wanted: Wanted) -> CachedModel:
    """As `find`. Raises `NotDownloaded`, with the command that downloads it."""
    model = find(wanted)
    if model is None:
        raise NotDownloaded(f"{wanted} is not downloaded: zinc pull {wanted}")
    return model


def remove(model: CachedModel) -> int:
    """Delete a model's files from the cache, in all snapshots; the bytes that this frees."""
    folder = model.path
    while folder.parent != folder and not folder.name.startswith("models--"):
        folder = folder.parent
    blobs = {path.resolve() for path in model.paths}
    freed = 0
    for link in [path for path in (folder / "snapshots").rglob("*") if path.is_symlink() or path.is_file()]:
        if link.resolve() in blobs:
            link.unlink()
    for blob in blobs:
        if blob.exists():
            freed += blob.stat().st_size
            blob.unlink()
    freed = freed or model.size  # without links a snapshot holds the files themselves
    for path in sorted((folder / "snapshots").rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    return freed
