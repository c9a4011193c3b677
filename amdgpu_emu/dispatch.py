"""From an ioctl's request and argument to its handler: how DRM and amdkfd size, copy in and copy back.

The kernel's struct and the caller's may differ in length: the buffer is as long as the longer one, what the caller
did not give is zero, and as much as the caller gave is copied back, also when the handler failed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from zinc_rt.amdgpu.abi.requests import READ, WRITE, Request, direction_of, size_of
from zinc_rt.linux import Argument


@dataclass(frozen=True)
class Handler:
    """What serves a number. call: takes the open file and the kernel's struct; returns the ioctl's result or None."""

    request: Request
    call: Callable[[Any, Any], int | None]


Table = dict[int, Handler]


def table(*handlers: Handler) -> Table:
    """By number."""
    return {handler.request.number: handler for handler in handlers}


def serve(handler: Handler, file: Any, request: int, argument: Argument) -> int:
    """Copy in, call, copy back. Raises what the handler raises."""
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
