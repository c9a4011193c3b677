"""A model in several files: `NAME-00001-of-00003.gguf` and its fellows, opened by the first one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from zinc_rt.checks import printable, show
from zinc_rt.gguf import limits
from zinc_rt.gguf.errors import FileAccessError, GGUFError, LimitExceeded, SplitMismatch
from zinc_rt.gguf.metadata import get
from zinc_rt.gguf.reader import GGUFFile
from zinc_rt.gguf.tensors import TensorInfo

NUMBER: Final = "split.no"
COUNT: Final = "split.count"
TENSORS: Final = "split.tensors.count"
_ONE_FOLDER: Final = "all parts of one download belong into one folder"


class SplitFile(GGUFFile):
    """The first part with the others behind it. Metadata are those of the first part; the tensors are those of all.

    `file_size` is the sum of the parts' sizes. A tensor's `offset` counts from the start of the part that holds it.
    """

    def __init__(self, parts: Sequence[GGUFFile]) -> None:
        """Use `GGUFFile.open`. Raises SplitMismatch, LimitExceeded, WrongMetadataType; the parts stay open then."""
        first = parts[0]
        self._parts, self.n_parts = tuple(parts), len(parts)
        self._source = first._source
        self.path, self.version, self.metadata = first.path, first.version, first.metadata
        self.alignment, self.data_offset = first.alignment, first.data_offset
        self.file_size = sum(part.file_size for part in parts)
        for number, part in enumerate(parts):
            _check_part(part, number, first)
        self._home: dict[str, GGUFFile] = {}
        tensors: dict[str, TensorInfo] = {}
        for part in parts:
            for name, tensor in part.tensors.items():
                if name in tensors:
                    raise _mismatch(part, f"has the tensor {show(name)}, which {_shown(self._home[name])} has too")
                tensors[name], self._home[name] = tensor, part
        if len(tensors) > limits.MAX_TENSORS:
            raise LimitExceeded(
                f"has {len(tensors)} tensors in its parts, the limit is {limits.MAX_TENSORS}", path=_shown(first)
            )
        announced = get(self.metadata, TENSORS, int, len(tensors))
        if len(tensors) != announced:
            raise _mismatch(first, f"announces {announced} tensors, but its {len(parts)} parts have {len(tensors)}")
        self.tensors = MappingProxyType(tensors)

    def raw(self, name: str) -> NDArray[np.uint8]:
        """As `GGUFFile.raw`, from the part that holds the tensor."""
        self.tensor(name)
        return self._home[name].raw(name)

    def release(self, name: str) -> None:
        """As `GGUFFile.release`."""
        self.tensor(name)
        self._home[name].release(name)

    def check_unwritten(self) -> None:
        """As `GGUFFile.check_unwritten`, for all parts."""
        for part in self._parts:
            part.check_unwritten()

    def check_unchanged(self) -> None:
        """As `GGUFFile.check_unchanged`, for all parts."""
        for part in self._parts:
            part.check_unchanged()

    def close(self) -> None:
        """As `GGUFFile.close`, for all parts."""
        for part in self._parts:
            part.close()


def with_other_parts(first: GGUFFile) -> GGUFFile:
    """The file itself, or where its metadata say that it is the first part of several, all parts as one.

    Raises SplitMismatch for another part than the first, a part that is missing and parts that do not belong
    together; GGUFError for a part that is damaged. No part stays open then, but `first`.
    """
    count = get(first.metadata, COUNT, int, 1)
    if count in (0, 1):
        return first
    if not 0 <= count <= limits.MAX_PARTS:
        raise LimitExceeded(f"is one of {count} parts, the limit is {limits.MAX_PARTS}", path=_shown(first))
    number = get(first.metadata, NUMBER, int)
    if not 0 <= number < count:
        raise _mismatch(first, f"is part {number + 1} of {count} by its key {NUMBER}")
    ending = _ending(number, count)
    if not first.path.endswith(ending):
        raise SplitMismatch(
            f"is part {number + 1} of {count} of a split model, so its name must end in {ending}; the other parts are"
            " found by it",
            path=_shown(first),
            hint="give it the name it was published under",
        )
    stem = first.path.removesuffix(ending)
    if number:
        raise SplitMismatch(
            f"is part {number + 1} of {count} of a split model",
            path=_shown(first),
            hint=f"open the first part, {printable(os.path.basename(stem) + _ending(0, count))}",
        )
    parts = [first]
    try:
        parts += (_open_part(f"{stem}{_ending(i, count)}", i, first, count) for i in range(1, count))
        return SplitFile(parts)
    except BaseException:
        for part in parts[1:]:
            part.close()
        raise


def _ending(number: int, count: int) -> str:
    return f"-{number + 1:05d}-of-{count:05d}.gguf"


def _open_part(path: str, number: int, first: GGUFFile, count: int) -> GGUFFile:
    try:
        return GGUFFile.open_one(path)
    except FileAccessError as error:
        raise SplitMismatch(
            f"{error.problem}; it is part {number + 1} of {count} of {_shown(first)}",
            path=printable(path),
            hint=_ONE_FOLDER,
        ) from error


def _check_part(part: GGUFFile, number: int, first: GGUFFile) -> None:
    """Whether a part says of itself what the first part says of it. Raises SplitMismatch, MissingKey,
    WrongMetadataType.
    """
    expected = {NUMBER: number, COUNT: get(first.metadata, COUNT, int)}
    if TENSORS in first.metadata:
        expected[TENSORS] = get(first.metadata, TENSORS, int)
    for key, value in expected.items():
        found = get(part.metadata, key, int)
        if found != value:
            raise _mismatch(part, f"has {key} {found}, where part {number + 1} of {_shown(first)} has {value}")
    for key in ("general.architecture", "general.name"):
        ours, theirs = first.metadata.get(key), part.metadata.get(key)
        if isinstance(ours, str) and isinstance(theirs, str) and ours != theirs:
            raise _mismatch(part, f"has {key} {show(theirs)}, where {_shown(first)} has {show(ours)}")


def _mismatch(part: GGUFFile, problem: str) -> GGUFError:
    return SplitMismatch(problem, path=_shown(part), hint=f"the parts are not of one model; {_ONE_FOLDER}")


def _shown(part: GGUFFile) -> str:
    return part._source.shown_path
