"""The integers of the kernel's interface, and how its structs are read."""

from __future__ import annotations

import ctypes

u8, u16, u32, u64 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64
i32, i64 = ctypes.c_int32, ctypes.c_int64
