"""Which file of a repository is the model: by format, whole or in parts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from zinc_rt.formats.table import FORMATS
from zinc_rt.hub.errors import NoSuchFile
from zinc_rt.hub.reference import HubModel
from zinc_rt.utils.part_name import PartName, whole_stem

USUAL: Final = ("Q4_K_M", "MXFP4", "Q4_0", "Q5_K_M", "Q8_0", "Q6_K")
"""Formats in the order in which one is taken where none was asked for."""
_ASIDE: Final = re.compile(r"mmproj|imatrix|^mtp-")
"""Files beside models: image towers, statistics, heads that guess for another file."""
PROJECTOR: Final = re.compile(r"mmproj.*\.gguf$")
"""Files of projectors, by their names in small letters."""
PROJECTOR_FORMATS: Final = ("F16", "BF16", "Q8_0", "F32")
"""Formats of projectors in the order in which one is taken."""
_FORMAT: Final = re.compile(
    r"(?:^|[-._])(?P<quant>(?:UD-)?(?:I?Q\d(?:_[A-Z0-9]+)*|TQ\d_\d|MXFP4(?:_MOE)?|BF16|F16|F32|FP16|FP32))(?=$|[-._])",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class RemoteFile:
    """A file of a repository. path: inside it.

    digest: of its bytes, in hex: SHA-256 (64 digits), or git's SHA-1 of a blob (40); empty where the hub does not say.
    """

    path: str
    size: int
    digest: str = ""


def quant_of(path: str) -> str:
    """The format that a file's name tells, in capitals; empty where it tells none."""
    found = [m["quant"].upper() for m in _FORMAT.finditer(whole_stem(path.rpartition("/")[2]))]
    return found[-1] if found else ""


def models_of(files: Iterable[RemoteFile]) -> Mapping[str, Sequence[RemoteFile]]:
    """Models by the path of their first file, with all of their parts in order; incomplete ones are left out."""
    whole, _ = _sorted(files)
    return whole


def begins_model(name: str) -> bool:
    """Whether a file is a model, or the first part of one, by its name alone."""
    part = PartName.parse(name)
    return _is_model(name) and (part is None or part.number == 1)


def _is_model(name: str) -> bool:
    return name.lower().endswith(".gguf") and not _ASIDE.search(name.lower())


def _sorted(files: Iterable[RemoteFile]) -> tuple[Mapping[str, Sequence[RemoteFile]], Sequence[str]]:
    """What `models_of` says, and a line about each model with missing parts."""
    whole: dict[str, list[RemoteFile]] = {}
    parts: dict[tuple[str, int], dict[int, RemoteFile]] = {}
    for file in files:
        if not _is_model(file.path.rpartition("/")[2]):
            continue
        part = PartName.parse(file.path)
        if part:
            parts.setdefault((part.stem, part.n_parts), {})[part.number] = file
        else:
            whole[file.path] = [file]
    lacking = []
    for (stem, count), found in parts.items():
        if len(found) == count and min(found) == 1 and max(found) == count:
            whole[found[1].path] = [found[i] for i in range(1, count + 1)]
        else:
            lacking.append(f"{stem} has {len(found)} of {count} parts")
    return dict(sorted(whole.items())), sorted(lacking)


def choose(wanted: HubModel, files: Iterable[RemoteFile]) -> Sequence[RemoteFile]:
    """The files of the model that is wanted, the first part first.

    Where no format is wanted: the first of `USUAL` that is there, else the one that runs here and has about as many
    bits. Raises `NoSuchFile` with what there is.
    """
    every = list(files)
    if wanted.file:  # by its name also what stands beside a model
        for parts in (*models_of(every).values(), *([file] for file in every)):
            if any(part.path == wanted.file for part in parts):
                return parts
        raise NoSuchFile(f"{wanted.repo} has no file {wanted.file}")
    models, lacking = _sorted(every)
    if not models:
        if lacking:
            raise NoSuchFile(f"{wanted.repo} has no whole model: {'; '.join(lacking)}")
        raise NoSuchFile(f"{wanted.repo} has no GGUF file; most models have a repository whose name ends in -GGUF")
    formats = {path: quant_of(path) for path in models}
    if wanted.quant:
        fits = (
            [path for path, quant in formats.items() if quant == wanted.quant]
            or [path for path, quant in formats.items() if _plain(quant) == wanted.quant]
            or [path for path in models if wanted.quant in path.upper()]
        )
        if not fits:
            there = ", ".join(sorted({quant for quant in formats.values() if quant})) or ", ".join(models)
            raise NoSuchFile("; ".join((f"{wanted.repo} has no {wanted.quant}; it has {there}", *lacking)))
        return models[min(fits, key=len)]
    for usual in (wanted.usual, *USUAL):
        fits = [path for path, has in formats.items() if has and usual in (has, _plain(has))]
        if fits:
            return models[min(fits, key=len)]
    return models[min(models, key=lambda path: _distance(formats[path], sum(file.size for file in models[path])))]


def projector_for(model: str, files: Iterable[RemoteFile]) -> RemoteFile | None:
    """The first of `projectors_for`, None where there is none."""
    return next(iter(projectors_for(model, files)), None)


def projectors_for(model: str, files: Iterable[RemoteFile]) -> Sequence[RemoteFile]:
    """Of the files beside a model, what may be its projector: what makes it read pictures. The likeliest is first.

    model: the path of its first file. One in the model's folder goes before others, then one whose name has more of the
    model's words, then F16 before other formats.
    """
    folder, _, own = model.rpartition("/")
    words = _words(own)

    def order(file: RemoteFile) -> tuple[bool, int, int, str]:
        quant = quant_of(file.path)
        rank = PROJECTOR_FORMATS.index(quant) if quant in PROJECTOR_FORMATS else len(PROJECTOR_FORMATS)
        there, _, name = file.path.rpartition("/")
        return there != folder, -len(words & _words(name)), rank, file.path

    return sorted((file for file in files if PROJECTOR.search(file.path.rpartition("/")[2].lower())), key=order)


def _words(name: str) -> frozenset[str]:
    """The words of a file's name but for formats."""
    return frozenset(re.split(r"[-._\s]+", _FORMAT.sub("-", whole_stem(name)).lower())) - {""}


def _plain(quant: str) -> str:
    return quant.removeprefix("UD-")


def _distance(quant: str, size: int) -> tuple[bool, float, int]:
    """How far a format is from Q4_K_M, to compare: those that do not run here last, then by bits, then the larger."""
    name = _plain(quant).replace("FP", "F")
    runs = not name or any(_made_of(name, record) for record in FORMATS)
    digits = re.search(r"\d+", name)
    return not runs, abs(int(digits[0]) - 4.3) if digits else math.inf, -size


def _made_of(name: str, record: str) -> bool:
    """Whether files of this format have tensors of that one: Q5_K_S of Q5_K, IQ3_M of IQ3_S and others."""
    return f"{name}_".startswith(f"{record}_") or (name.startswith("IQ") and name[:3] == record[:3])
