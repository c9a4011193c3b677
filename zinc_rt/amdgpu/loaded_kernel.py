"""A kernel in executable memory, and what its dispatch says besides."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.lang.amd import AmdKernel

_S_CODE_END = (0xBF9F0000).to_bytes(4, "little")
_LINE = 128
_PAD_LINES = 3


@dataclass(frozen=True)
class LoadedKernel:
    """va: of its first instruction, a multiple of 256; rsrc1, rsrc2, rsrc3: the COMPUTE_PGM_RSRC* words; threads: of a
    workgroup; n_user_data: dwords that it reads from USER_DATA_0 on; kernel: where it came from, for its arguments.
    """

    name: str
    va: int
    rsrc1: int
    rsrc2: int
    rsrc3: int
    threads: tuple[int, int, int]
    n_user_data: int
    wave32: bool = True
    kernel: AmdKernel | None = None


def padded(code: bytes) -> bytes:
    """Code with what instruction prefetch may run into behind it: the rest of a cache line and three lines more."""
    return code + _S_CODE_END * ((-len(code) % _LINE + _PAD_LINES * _LINE) // 4)
