"""What a model will take on this machine, before it is downloaded: whether it runs and fits, and how fast it can be."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zinc_rt.errors import ZincError

if TYPE_CHECKING:
    from zinc_rt.cli.summary import Summary
    from zinc_rt.hub.choose import RemoteFile
    from zinc_rt.hub.remote import Repository

_POSITIONS: Final = 4096
_BESIDE: Final = 100 << 20
"""Bytes beside weights and cache: the process, its tables and temporaries."""
_MEASURED: Final = 256 << 20
"""Bytes that are read to measure the memory's bandwidth."""


def outlook(repository: Repository, files: Sequence[RemoteFile]) -> Iterator[str]:
    """Lines about the model, none of which keeps a download from starting. Raises `HubError`."""
    from zinc_rt.cli.summary import summarize
    from zinc_rt.gguf import GGUFFile
    from zinc_rt.hub.preview import preview

    size, summary = sum(file.size for file in files), None
    if len(files) == 1:  # the directory of a model in parts is in parts, too
        with tempfile.TemporaryDirectory(prefix="zinc-") as folder:
            path = preview(repository, files[0], Path(folder))
            if path is not None:
                with GGUFFile.open(path) as file:
                    summary = summarize(file)
    if summary is not None and not summary.runs:
        yield f"this version cannot run it: {summary.reason}"
        return
    yield from _memory(size, summary)
    yield from _speed(size, summary)


def _memory(size: int, summary: Summary | None) -> Iterator[str]:
    from zinc_rt.mem.plan import available_memory, format_bytes

    needs = summary.needs if summary else None
    cache = needs.position * _POSITIONS + needs.sequence if needs else 0
    there = available_memory()
    takes = f"takes about {format_bytes(size + cache + _BESIDE)} of memory with {_POSITIONS} positions"
    if there is None:
        yield takes
    elif size + cache + _BESIDE > there:
        yield f"{takes}, and {format_bytes(there)} are free: it will be refused here unless more is"
    else:
        yield f"{takes}, of {format_bytes(there)} that are free"


def _speed(size: int, summary: Summary | None) -> Iterator[str]:
    from zinc_rt.backends.cpu.backend import CpuBackend

    step = summary.needs.step if summary and summary.needs else size
    try:
        with CpuBackend() as backend:
            bandwidth = backend.read_bandwidth(_MEASURED)
    except ZincError:
        return
    yield (
        f"memory reads at {bandwidth:.0f} GB/s and a token reads {step / 1e9:.2f} GB: at most"
        f" {bandwidth * 1e9 / step:.0f} tokens/s on this CPU"
    )
