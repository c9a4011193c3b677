"""Buffer lists of submissions: the kernel makes their buffers resident."""

from __future__ import annotations

import ctypes
import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amdgpu_emu.abi.cs import (
    AMDGPU_BO_LIST_OP_CREATE,
    AMDGPU_BO_LIST_OP_DESTROY,
    AMDGPU_BO_LIST_OP_UPDATE,
    DrmAmdgpuBoList,
    DrmAmdgpuBoListEntry,
    DrmAmdgpuBoListIn,
)
from amdgpu_emu.abi.requests import AMDGPU_BO_LIST
from amdgpu_emu.dispatch import Handler
from amdgpu_emu.drm.gem import Gem, gem_of
from amdgpu_emu.errors import CallRefused
from amdgpu_emu.user_memory import copy_from_user

if TYPE_CHECKING:
    from amdgpu_emu.drm.file import DrmFile

_MAX_ENTRIES = 131072
_MAX_BYTES = 64 << 20
_MAX_PRIORITY = 32


@dataclass(eq=False)
class BoList:
    """A list of buffers with priorities. It holds the buffers, so they outlive their handles."""

    entries: list[tuple[Gem, int]]

    def release(self) -> None:
        """Drop the hold on the buffers."""
        for gem, _ in self.entries:
            gem.put()


EMPTY = BoList([])


def make_list(file: DrmFile, args: DrmAmdgpuBoListIn) -> BoList:
    """Make a list from the caller's array. Raises `CallRefused`: EINVAL, EFAULT, ENOENT for an unknown handle."""
    handles = read_entries(file, args)
    entries: list[tuple[Gem, int]] = []
    try:
        for handle, priority in handles:
            gem = gem_of(file, handle)
            gem.get()
            entries.append((gem, min(priority, _MAX_PRIORITY)))
    except CallRefused:
        BoList(entries).release()
        raise
    return BoList(entries)


def read_entries(file: DrmFile, args: DrmAmdgpuBoListIn) -> list[tuple[int, int]]:
    """Read handles and priorities from the caller.

    Since Linux 7.0 entries have exactly 8 bytes and are limited in number; before, any stride is taken, and what an
    entry lacks is zero.
    """
    size, count = args.bo_info_size, args.bo_number
    entry = ctypes.sizeof(DrmAmdgpuBoListEntry)
    if file.since(7, 0) and (size != entry or count > _MAX_ENTRIES):
        raise CallRefused(
            errno.EINVAL, f"{count} entries of {size} bytes: at most {_MAX_ENTRIES} of {entry} bytes are taken"
        )
    if count * entry > _MAX_BYTES:
        raise CallRefused(errno.ENOMEM, f"{count} entries: the kernel has room for {_MAX_BYTES // entry}")
    raw = copy_from_user(args.bo_info_ptr, size * count)
    found = []
    for i in range(count):
        part = raw[i * size : (i + 1) * size][:entry].ljust(entry, b"\0")
        one = DrmAmdgpuBoListEntry.from_buffer_copy(part)
        found.append((one.bo_handle, one.bo_priority))
    return found


def bo_list(file: DrmFile, args: DrmAmdgpuBoList) -> None:
    """Serve BO_LIST."""
    op, handle = args.in_.operation, args.in_.list_handle
    if not file.since(7, 0):
        read_entries(file, args.in_)  # for every operation, also those that need none
    if op == AMDGPU_BO_LIST_OP_CREATE:
        handle = file.bo_lists.add(make_list(file, args.in_)) or 0
    elif op == AMDGPU_BO_LIST_OP_DESTROY:
        gone = file.bo_lists.remove(handle)
        if gone is not None:
            gone.release()
        handle = 0
    elif op == AMDGPU_BO_LIST_OP_UPDATE:
        new = make_list(file, args.in_)
        old = file.bo_lists.get(handle)
        if old is None:
            new.release()
            raise CallRefused(errno.ENOENT, f"list {handle} does not exist")
        old.entries, new.entries = new.entries, old.entries
        new.release()
    else:
        raise CallRefused(errno.EINVAL, f"list operation {op} does not exist")
    ctypes.memset(ctypes.addressof(args), 0, ctypes.sizeof(args))
    args.out.list_handle = handle


HANDLERS = (Handler(AMDGPU_BO_LIST, bo_list),)
