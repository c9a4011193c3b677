"""The way of an ioctl to its handler: how DRM and amdkfd size, copy in and copy back the argument.

The kernel's struct and the caller's may differ in length. The buffer is as long as the longer one, and bytes that the
caller did not pass are zero. As many bytes as the caller passed are copied back, also when the handler failed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from amdgpu_emu.abi.requests import READ, WRITE, Ioctl, direction_of, size_of
from zinc_rt.utils.linux import Argument


@dataclass(frozen=True)
class Handler:
    """The handler of an ioctl number. call: takes the open file and the kernel's struct; returns the ioctl's result or
    None.
    """

    request: Ioctl
    call: Callable[[Any, Any], int | None]


Table = dict[int, Handler]


def table(*handlers: Handler) -> Table:
    """The handlers by ioctl number."""
    return {handler.request.number: handler for handler in handlers}


def serve(handler: Handler, file: Any, request: int, argument: Argument) -> int:
    """Serve an ioctl: copy the argument in, call the handler, copy back. Raises what the handler raises."""
    size = size_of(request)
    given = min(size, ctypes.sizeof(argument))  # a caller that announces more than it has would be a wild pointer
    directions = direction_of(request) & handler.request.direction
    kind = handler.request.argument
    buffer = bytearray(max(size, ctypes.sizeof(kind)))
    if directions & WRITE:
        buffer[:given] = ctypes.string_at(ctypes.addressof(argument), given)
    inside = kind.from_buffer(buffer)
    try:
        return handler.call(file, inside) or 0
    finally:
        if directions & READ:
            del inside
            ctypes.memmove(ctypes.addressof(argument), bytes(buffer[:given]), given)
