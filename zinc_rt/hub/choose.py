"""Which file of a repository is the model: by format, whole or in parts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from zinc_rt.hub.errors import NoSuchFile
from zinc_rt.hub.reference import Wanted

USUAL: Final = ("Q4_K_M", "MXFP4", "Q4_0", "Q5_K_M", "Q8_0", "Q6_K")
"""Formats in the order in which one is taken where none was asked for."""
_PART: Final = re.compile(r"^(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$", re.IGNORECASE)
_ASIDE: Final = ("mmproj", "imatrix")
"""Files beside models: image towers, statistics."""
_FORMAT: Final = re.compile(
    r"(?:^|[-._])(?P<quant>(?:UD-)?(?:I?Q\d(?:_[A-Z0-9]+)*|TQ\d_\d|MXFP4(?:_MOE)?|BF16|F16|F32|FP16|FP32))(?=$|[-._])",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class RemoteFile:
    """A file of a repository. path: inside it; sha256: of its bytes, empty where the hub does not say."""

    path: str
    size: int
    sha256: str = ""


def quant_of(path: str) -> str:
    """The format that a file's name tells, in capitals; empty where it tells none."""
    name = path.rpartition("/")[2].removesuffix(".gguf").removesuffix(".GGUF")
    part = _PART.match(name + ".gguf")
    found = [m["quant"].upper() for m in _FORMAT.finditer(part["stem"] if part else name)]
    return found[-1].removeprefix("UD-") if found else ""


def models_of(files: Iterable[RemoteFile]) -> Mapping[str, Sequence[RemoteFile]]:
    """Models by the path of their first file, with all of their parts in order; incomplete ones are left out."""
    single: dict[str, list[RemoteFile]] = {}
    parts: dict[tuple[str, int], dict[int, RemoteFile]] = {}
    for file in files:
        name = file.path.rpartition("/")[2].lower()
        if not name.endswith(".gguf") or any(word in name for word in _ASIDE):
            continue
        part = _PART.match(file.path)
        if part:
            parts.setdefault((part["stem"], int(part["count"])), {})[int(part["number"])] = file
        else:
            single[file.path] = [file]
    for (_, count), found in parts.items():
        if sorted(found) == list(range(1, count + 1)):
            single[found[1].path] = [found[i] for i in range(1, count + 1)]
    return dict(sorted(single.items()))


def choose(wanted: Wanted, files: Iterable[RemoteFile]) -> Sequence[RemoteFile]:
    """The files of the model that is wanted, the first part first. Raises `NoSuchFile` with what there is."""
    models = models_of(files)
    if not models:
        raise NoSuchFile(f"{wanted.repo} has no GGUF file; most models have a repository whose name ends in -GGUF")
    formats = {path: quant_of(path) for path in models}
    if wanted.quant:
        fits = [path for path, quant in formats.items() if quant == wanted.quant]
        fits = fits or [path for path in models if wanted.quant in path.upper()]
        if not fits:
            there = ", ".join(sorted({quant for quant in formats.values() if quant})) or ", ".join(models)
            raise NoSuchFile(f"{wanted.repo} has no {wanted.quant}; it has {there}")
        return models[min(fits, key=len)]
    for quant in USUAL:
        fits = [path for path, has in formats.items() if has == quant]
        if fits:
            return models[min(fits, key=len)]
    return models[min(models, key=lambda path: sum(file.size for file in models[path]))]
