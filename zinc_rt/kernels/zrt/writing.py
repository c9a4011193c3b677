"""From a kernel to the bytes of its file."""

from __future__ import annotations

import struct

from zinc_rt.kernels.zrt import form
from zinc_rt.kernels.zrt.errors import InvalidField, UnsupportedGpuTarget
from zinc_rt.kernels.zrt.form import Header, Launch
from zinc_rt.kernels.zrt.reading import read_zrt
from zinc_rt.kernels.zrt.types import encode
from zinc_rt.lang.frontend import argument_dwords
from zinc_rt.lang.gpu import GpuKernel
from zinc_rt.lang.types import Ptr


def write_zrt(kernel: GpuKernel) -> bytes:
    """The file of a kernel; its assembly is left out. The same kernel gives the same bytes.

    Raises `ZrtError` for a kernel that the format cannot hold.
    """
    if kernel.target not in form.GPU_TARGETS:
        raise UnsupportedGpuTarget("gpu_target", kernel.target, f"it must be {', '.join(form.GPU_TARGETS)}")
    if kernel.wave not in (32, 64):
        raise InvalidField("subgroup_size", kernel.wave, "it must be 32 or 64")
    arguments = b"".join(_argument(a.name, encode(a.type), a.dword) for a in kernel.arguments)
    name = kernel.name.encode()
    name_offset = form.ARGUMENTS_AT + len(arguments)
    code_offset = -(-(name_offset + len(name)) // form.ALIGNMENT) * form.ALIGNMENT
    pointers = sum(isinstance(a.type, Ptr) for a in kernel.arguments)
    scalars = sum(argument_dwords(a.type) for a in kernel.arguments if not isinstance(a.type, Ptr))
    header = Header(
        form.MAGIC, form.ABI, form.GPU_TARGETS[kernel.target], len(kernel.code), 0, pointers, 4 * scalars,
        kernel.wave, kernel.workgroup, 1, 1, kernel.lds_bytes, kernel.vgprs, form.SGPRS, kernel.occupancy,
        name_offset, len(name),
    )  # fmt: skip
    launch = Launch(
        kernel.rsrc1, kernel.rsrc2, kernel.rsrc3, kernel.tmpring, kernel.dwords, len(kernel.arguments), len(arguments),
        kernel.size, code_offset, code_offset + len(kernel.code),
    )  # fmt: skip
    try:
        head = form.HEADER.pack(*header) + form.LAUNCH.pack(*launch)
    except struct.error as error:
        raise InvalidField("a number of the header", kernel.name, str(error)) from None
    body = arguments + name + bytes(code_offset - name_offset - len(name)) + kernel.code
    data = head + form.checksum(head + bytes(form.CHECKSUM) + body) + body
    read_zrt(data)  # what cannot be read must not be written
    return data


def _argument(name: str, kind: bytes, dword: int) -> bytes:
    text = name.encode()
    if max(len(text), len(kind)) > 0xFFFF:
        size = f"{len(text)} + {len(kind)} bytes"
        raise InvalidField(f"argument {name[:40]}", size, "its name and its type have up to 65535 each")
    return form.ARGUMENT.pack(dword, len(text), len(kind), 0) + text + kind
