"""The parts of a `.zrt` file, as `docs/kernels.md` lists them. Everything is little-endian.

0    header        64 bytes, one `Header`
64   launch        48 bytes, one `Launch`
112  checksum      16 bytes, BLAKE2b of everything else
128  arguments     `Launch.n_arguments` entries of an `ARGUMENT`, a name, a type
     name          of the kernel, at `Header.name_offset`
     zeros         up to a multiple of 256
     code          `Header.code_size` bytes, up to the end
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Final, NamedTuple

from zinc_rt.kernels.zrt.errors import NotZrt, UnsupportedAbi, ZrtTruncated

MAGIC: Final = 0x005A5254  # "TRZ\0" as bytes
ABI: Final = 1
SUFFIX: Final = ".zrt"
GPU_TARGETS: Final = {"gfx1201": 1, "gfx1200": 2, "gfx1151": 3, "gfx1100": 4}
OTHER_TARGETS: Final = {0x10: "Xe2", 0x20: "sm_90", 0x30: "Apple", 0xFF: "a CPU"}
"""Numbers that the format reserves for machines without kernels here."""

ALIGNMENT: Final = 256  # of the code in the file, as of a program in memory
USER_DWORDS: Final = 16
MAX_NAME: Final = 255
MAX_CODE: Final = 16 << 20
MAX_WORKGROUP: Final = 1024
MAX_LDS: Final = 64 << 10
SGPRS: Final = 106
"""What every wave of gfx10 and later has; RSRC1 does not say it any more."""


class Header(NamedTuple):
    """The first 64 bytes. code_size: with the padding behind the instructions; entry_offset: from the code's start;
    buffer_count: arguments that are addresses; push_const_bytes: of the others; subgroup_size: lanes of a wave;
    lds_bytes: of a workgroup; vgpr, sgpr: of a lane and of a wave; occupancy: waves that a SIMD holds at once.
    """

    magic: int
    abi: int
    gpu_target: int
    code_size: int
    entry_offset: int
    buffer_count: int
    push_const_bytes: int
    subgroup_size: int
    workgroup_x: int
    workgroup_y: int
    workgroup_z: int
    lds_bytes: int
    vgpr: int
    sgpr: int
    occupancy: int
    name_offset: int
    name_size: int


class Launch(NamedTuple):
    """What COMPUTE_PGM_RSRC1, 2, 3 and COMPUTE_TMPRING_SIZE are to be; user_dwords: arguments, from USER_DATA_0 on;
    instruction_bytes: of the code that are instructions; code_offset: in the file; file_size: of all of it.
    """

    rsrc1: int
    rsrc2: int
    rsrc3: int
    tmpring: int
    user_dwords: int
    n_arguments: int
    arguments_size: int
    instruction_bytes: int
    code_offset: int
    file_size: int
    reserved_0: int = 0
    reserved_1: int = 0


HEADER: Final = struct.Struct("<12I2H3I")
LAUNCH: Final = struct.Struct("<12I")
CHECKSUM: Final = 16
CHECKSUM_AT: Final = HEADER.size + LAUNCH.size
ARGUMENTS_AT: Final = CHECKSUM_AT + CHECKSUM
ARGUMENT: Final = struct.Struct("<4H")  # first dword, bytes of the name, bytes of the type, zero


def checksum(data: bytes) -> bytes:
    """Of a whole file, whatever its checksum field holds."""
    digest = blake2b(data[:CHECKSUM_AT], digest_size=CHECKSUM)
    digest.update(data[ARGUMENTS_AT:])
    return digest.digest()


def header_of(data: bytes) -> Header:
    """The header alone; only its magic number and its form are checked. Raises `ZrtError`."""
    if len(data) < ARGUMENTS_AT:
        raise ZrtTruncated("the file's size", len(data), f"it has at least {ARGUMENTS_AT} bytes")
    header = Header(*HEADER.unpack_from(data))
    if header.magic != MAGIC:
        raise NotZrt("magic", f"{header.magic:#010x}", f"it must be {MAGIC:#010x}")
    if header.abi != ABI:
        raise UnsupportedAbi("abi", header.abi, f"this release reads {ABI}")
    return header
