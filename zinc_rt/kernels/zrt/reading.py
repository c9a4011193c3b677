"""From the bytes of a file to its kernel. No field is trusted: all are checked before anything is returned."""

from __future__ import annotations

from zinc_rt.kernels.zrt import form
from zinc_rt.kernels.zrt.errors import InvalidField, UnsupportedGpuTarget, ZrtDamaged, ZrtTruncated
from zinc_rt.kernels.zrt.form import Header, Launch, header_of
from zinc_rt.kernels.zrt.types import decode
from zinc_rt.lang.frontend import argument_dwords
from zinc_rt.lang.gpu import Argument, GpuKernel
from zinc_rt.lang.types import Ptr

_DWORD = 0xFFFFFFFF


def read_zrt(data: bytes) -> GpuKernel:
    """The kernel of a file. Raises `ZrtError`: which field, what it has, what it may have."""
    header = header_of(data)
    launch = Launch(*form.LAUNCH.unpack_from(data, form.HEADER.size))
    _check_places(data, header, launch)
    if (found := form.checksum(data)) != (told := data[form.CHECKSUM_AT : form.ARGUMENTS_AT]):
        raise ZrtDamaged("checksum", told.hex(), f"the file's bytes give {found.hex()}: it is damaged")
    target = _target(header.gpu_target)
    arguments = _arguments(data[form.ARGUMENTS_AT : header.name_offset], launch)
    kernel = GpuKernel(
        name=_text(data[header.name_offset : header.name_offset + header.name_size], "name"),
        code=data[launch.code_offset :],
        size=launch.instruction_bytes,
        arguments=arguments,
        dwords=launch.user_dwords,
        workgroup=header.workgroup_x,
        rsrc1=launch.rsrc1,
        rsrc2=launch.rsrc2,
        rsrc3=launch.rsrc3,
        tmpring=launch.tmpring,
        wave=header.subgroup_size,
        target=target,
    )
    _check_header(header, kernel)
    return kernel


def _check(field: str, value: int, low: int, high: int, why: str = "") -> None:
    if not low <= value <= high:
        limit = f"it must be {low}" if low == high else f"it must be {low} to {high}"
        raise InvalidField(field, value, limit + (f", {why}" if why else ""))


def _check_places(data: bytes, header: Header, launch: Launch) -> None:
    """Every part lies in the file, in order, without gaps."""
    _check("code_size", header.code_size, 4, form.MAX_CODE)
    if launch.file_size != len(data):
        raise ZrtTruncated("the file's size", len(data), f"its launch section says {launch.file_size}")
    _check("name_size", header.name_size, 1, form.MAX_NAME)
    name_offset = form.ARGUMENTS_AT + launch.arguments_size
    _check("name_offset", header.name_offset, name_offset, name_offset, "where the arguments end")
    end = header.name_offset + header.name_size
    code_offset = -(-end // form.ALIGNMENT) * form.ALIGNMENT
    _check("code_offset", launch.code_offset, code_offset, code_offset, "the next multiple of 256 behind the name")
    told = code_offset + header.code_size
    if told != len(data):
        raise ZrtTruncated("the file's size", len(data), f"code_offset and code_size say {told}")
    _check("entry_offset", header.entry_offset, 0, 0, "programs start where their code does")
    _check("code_size", header.code_size % 4, 0, 0, "modulo 4")
    _check("instruction_bytes", launch.instruction_bytes, 4, header.code_size)
    _check("instruction_bytes", launch.instruction_bytes % 4, 0, 0, "modulo 4")
    for i, value in enumerate((launch.reserved_0, launch.reserved_1)):
        _check(f"reserved_{i}", value, 0, 0)
    if any(data[end:code_offset]):
        raise InvalidField("padding before the code", data[end:code_offset].hex(), "it is zero")


def _target(number: int) -> str:
    for name, value in form.GPU_TARGETS.items():
        if value == number:
            return name
    known = ", ".join(f"{value} {name}" for name, value in form.GPU_TARGETS.items())
    other = f" (that is {form.OTHER_TARGETS[number]})" if number in form.OTHER_TARGETS else ""
    raise UnsupportedGpuTarget("gpu_target", f"{number:#x}{other}", f"kernels are made for {known}")


def _arguments(table: bytes, launch: Launch) -> tuple[Argument, ...]:
    _check("user_dwords", launch.user_dwords, 0, form.USER_DWORDS)
    _check("n_arguments", launch.n_arguments, 0, form.USER_DWORDS)
    found: list[Argument] = []
    at = dword = 0
    for i in range(launch.n_arguments):
        field = f"argument {i}"
        if at + form.ARGUMENT.size > len(table):
            raise InvalidField("arguments_size", len(table), f"{field} begins at {at}")
        first, n_name, n_type, zero = form.ARGUMENT.unpack_from(table, at)
        at += form.ARGUMENT.size
        _check(f"{field}, reserved", zero, 0, 0)
        _check(f"{field}, first dword", first, dword, dword, "behind the argument before")
        if at + n_name + n_type > len(table):
            raise InvalidField("arguments_size", len(table), f"{field} ends at {at + n_name + n_type}")
        name = _text(table[at : at + n_name], f"{field}, name")
        if not name.isidentifier() or name in (a.name for a in found):
            raise InvalidField(f"{field}, name", repr(name), "it is an identifier that no other argument has")
        kind = decode(table[at + n_name : at + n_name + n_type], f"{field}, type")
        found.append(Argument(name, kind, dword))
        at += n_name + n_type
        dword += argument_dwords(kind)
    _check("arguments_size", len(table), at, at, "where the last argument ends")
    _check("user_dwords", launch.user_dwords, dword, dword, "what the arguments take")
    return tuple(found)


def _text(raw: bytes, field: str) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise InvalidField(field, raw[:40], "it is UTF-8") from None
    if not text.isprintable() or not text:
        raise InvalidField(field, repr(text[:40]), "it is printable text")
    return text


def _check_header(header: Header, kernel: GpuKernel) -> None:
    """What the header says besides agrees with the registers, the arguments and the limits of the hardware."""
    if header.subgroup_size not in (32, 64):
        raise InvalidField("subgroup_size", header.subgroup_size, "it must be 32 or 64")
    _check("workgroup_x", header.workgroup_x, 1, form.MAX_WORKGROUP)
    _check("workgroup_y", header.workgroup_y, 1, 1, "workgroups have one dimension")
    _check("workgroup_z", header.workgroup_z, 1, 1, "workgroups have one dimension")
    _check("RSRC2.USER_SGPR", kernel.rsrc2 >> 1 & 0x1F, kernel.dwords, kernel.dwords, "what the arguments take")
    _check("lds_bytes", header.lds_bytes, kernel.lds_bytes, kernel.lds_bytes, "as RSRC2 says")
    _check("lds_bytes", header.lds_bytes, 0, form.MAX_LDS)
    _check("vgpr", header.vgpr, kernel.vgprs, kernel.vgprs, "as RSRC1 says")
    _check("sgpr", header.sgpr, form.SGPRS, form.SGPRS, "what every wave has")
    pointers = sum(isinstance(a.type, Ptr) for a in kernel.arguments)
    _check("buffer_count", header.buffer_count, pointers, pointers, "the arguments that are pointers")
    scalars = 4 * (kernel.dwords - 2 * pointers)
    _check("push_const_bytes", header.push_const_bytes, scalars, scalars, "what the other arguments take")
    waves = kernel.occupancy
    _check("occupancy", header.occupancy, waves, waves, "what registers and LDS leave")
    _check("occupancy", waves, 1, 16, "a workgroup must fit")
