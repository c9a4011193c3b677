"""A model in several files: `NAME-00001-of-00003.gguf` and its fellows, opened by the first one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from zinc_rt.gguf import limits
from zinc_rt.gguf.errors import FileAccessError, GGUFError
from zinc_rt.gguf.metadata import get
from zinc_rt.gguf.part import GGUFPart
from zinc_rt.utils.checks import printable, show
from zinc_rt.utils.part_name import PartName

NUMBER: Final = "split.no"
COUNT: Final = "split.count"
TENSORS: Final = "split.tensors.count"
_ONE_FOLDER: Final = "all parts of one download belong into one folder"


def open_parts(path: str | os.PathLike[str]) -> list[GGUFPart]:
    """The file at `path`, and behind it the other parts where its metadata say that it is the first one of several.

    Raises GGUFError for another part than the first, and for a part that is missing or damaged. No part stays open
    then.
    """
    parts = [GGUFPart(path)]
    try:
        first, count = parts[0], get(parts[0].metadata, COUNT, int, 1)
        if count in (0, 1):
            return parts
        stem = _stem(first, count)
        for number in range(1, count):
            parts.append(_open_part(f"{stem}{PartName(stem, number + 1, count).ending}", number, first, count))
    except BaseException:
        for part in parts:
            part.close()
        raise
    return parts


def join(parts: Sequence[GGUFPart]) -> dict[str, GGUFPart]:
    """The part that has each tensor, by the tensor's name.

    Raises GGUFError for parts that do not belong together, or too many, MissingKey.
    """
    first = parts[0]
    if len(parts) == 1:
        return dict.fromkeys(first.tensors, first)
    homes: dict[str, GGUFPart] = {}
    for number, part in enumerate(parts):
        _check_part(part, number, first)
        for name in part.tensors:
            if name in homes:
                raise _mismatch(part, f"has the tensor {show(name)}, which {homes[name].shown_path} has too")
            homes[name] = part
    if len(homes) > limits.MAX_TENSORS:
        raise GGUFError(
            f"has {len(homes)} tensors in its parts, the limit is {limits.MAX_TENSORS}", path=first.shown_path
        )
    announced = get(first.metadata, TENSORS, int, len(homes))
    if len(homes) != announced:
        raise _mismatch(first, f"announces {announced} tensors, but its {len(parts)} parts have {len(homes)}")
    return homes


def _stem(first: GGUFPart, count: int) -> str:
    """What the paths of all parts begin with. Raises GGUFError unless this is the first part, by key and name."""
    if not 0 < count <= limits.MAX_PARTS:
        raise GGUFError(f"is one of {count} parts, the limit is {limits.MAX_PARTS}", path=first.shown_path)
    number = get(first.metadata, NUMBER, int)
    if not 0 <= number < count:
        raise _mismatch(first, f"is part {number + 1} of {count} by its key {NUMBER}")
    ending = PartName("", number + 1, count).ending
    if not first.path.endswith(ending):
        raise GGUFError(
            f"is part {number + 1} of {count} of a split model, so its name must end in {ending}; the other parts are"
            " found by it",
            path=first.shown_path,
            hint="give it the name it was published under",
        )
    stem = first.path.removesuffix(ending)
    if number:
        raise GGUFError(
            f"is part {number + 1} of {count} of a split model",
            path=first.shown_path,
            hint=f"open the first part, {printable(os.path.basename(stem) + PartName(stem, 1, count).ending)}",
        )
    return stem


def _open_part(path: str, number: int, first: GGUFPart, count: int) -> GGUFPart:
    try:
        return GGUFPart(path)
    except FileAccessError as error:
        raise GGUFError(
            f"{error.problem}; it is part {number + 1} of {count} of {first.shown_path}",
            path=printable(path),
            hint=_ONE_FOLDER,
        ) from error


def _check_part(part: GGUFPart, number: int, first: GGUFPart) -> None:
    """Whether a part and the first part agree about it. Raises GGUFError, MissingKey."""
    expected = {NUMBER: number, COUNT: get(first.metadata, COUNT, int)}
    if TENSORS in first.metadata:
        expected[TENSORS] = get(first.metadata, TENSORS, int)
    for key, value in expected.items():
        found = get(part.metadata, key, int)
        if found != value:
            raise _mismatch(part, f"has {key} {found}, where part {number + 1} of {first.shown_path} has {value}")
    for key in ("general.architecture", "general.name"):
        ours, theirs = first.metadata.get(key), part.metadata.get(key)
        if isinstance(ours, str) and isinstance(theirs, str) and ours != theirs:
            raise _mismatch(part, f"has {key} {show(theirs)}, where {first.shown_path} has {show(ours)}")


def _mismatch(part: GGUFPart, problem: str) -> GGUFError:
    return GGUFError(problem, path=part.shown_path, hint=f"the parts are not of one model; {_ONE_FOLDER}")
