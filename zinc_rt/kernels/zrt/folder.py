"""Kernel files on disk: one, or a folder of them. They appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from zinc_rt.errors import ZincError
from zinc_rt.kernels.zrt.errors import ZrtError, ZrtTruncated
from zinc_rt.kernels.zrt.form import MAX_CODE, SUFFIX
from zinc_rt.kernels.zrt.reading import read_zrt
from zinc_rt.kernels.zrt.writing import write_zrt
from zinc_rt.lang.gpu import GpuKernel

_MAX_FILE = MAX_CODE + (1 << 20)


class KernelFileError(ZincError):
    """A kernel file or its folder cannot be read or written."""


def read_file(path: Path) -> GpuKernel:
    """The kernel in a file. Raises `ZrtError` and `KernelFileError`, which name it."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE + 1)
    except OSError as error:
        raise KernelFileError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > _MAX_FILE:
        raise ZrtTruncated("the file's size", f"more than {_MAX_FILE}", "no kernel is so large", str(path))
    try:
        return read_zrt(data)
    except ZrtError as error:
        raise error.at(str(path)) from None


def read_folder(folder: Path) -> dict[str, GpuKernel]:
    """The kernels of all `.zrt` files of a folder by name, in the order of their files. Raises as `read_file`, and for
    a name that two files have.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == SUFFIX)
    except OSError as error:
        raise KernelFileError(f"cannot read {folder}: {error.strerror}") from None
    found: dict[str, GpuKernel] = {}
    for path in paths:
        kernel = read_file(path)
        if kernel.name in found:
            raise KernelFileError(f"{path} holds {kernel.name}, as another file of {folder} does; remove one")
        found[kernel.name] = kernel
    return found


def write_file(path: Path, kernel: GpuKernel) -> int:
    """Write a kernel's file; its bytes. Raises `ZrtError`, `KernelFileError`; nothing half-written stays then."""
    return _write({path: write_zrt(kernel)})[path]


def write_folder(folder: Path, kernels: Mapping[str, GpuKernel]) -> dict[str, int]:
    """Write kernels into a folder as `<name>.zrt`; the bytes of each. The folder is made where it is missing.

    Raises as `write_file`; files that were there before are as they were then, and no new ones are.
    """
    files = {folder / f"{name}{SUFFIX}": write_zrt(kernel) for name, kernel in kernels.items()}
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise KernelFileError(f"cannot make {folder}: {error.strerror}") from None
    try:
        return {path.stem: size for path, size in _write(files).items()}
    except BaseException:
        if made:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def _write(files: Mapping[Path, bytes]) -> dict[Path, int]:
    """All beside their places first; then they are moved there."""
    parts = {path: path.with_name(f".{path.name}.{os.getpid()}.part") for path in files}
    try:
        for path, data in files.items():
            try:
                with parts[path].open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise KernelFileError(
                    f"cannot write {path}: {error.strerror}; choose another folder or make room"
                ) from None
        for path, part in parts.items():
            try:
                part.replace(path)
            except OSError as error:
                raise KernelFileError(f"cannot write {path}: {error.strerror}") from None
    finally:
        for part in parts.values():
            with contextlib.suppress(OSError):
                part.unlink()
    return {path: len(data) for path, data in files.items()}
