"""The ranges of flat addresses that mean LDS or scratch memory instead of global memory.

The kernel driver puts bits 63 to 48 of the two bases into the halves of SH_MEM_BASES (gfx9 and later: 1 << 48 for LDS,
2 << 48 for scratch). Shaders read them as src_shared_base and src_private_base.
"""

from __future__ import annotations

from typing import Final

SHARED_BASE: Final = 1 << 48
PRIVATE_BASE: Final = 2 << 48
BYTES: Final = 1 << 32
"""Bytes of each window."""
