"""Where flat addresses stop meaning global memory: the windows onto LDS and onto scratch memory.

The kernel's driver puts the base of the one into bits 63 to 48 of SH_MEM_BASES' first half and that of the other into
its second (gfx9 and later: 1 << 48 and 2 << 48); shaders read them as src_shared_base and src_private_base.
"""

from __future__ import annotations

from typing import Final

SHARED_BASE: Final = 1 << 48
PRIVATE_BASE: Final = 2 << 48
BYTES: Final = 1 << 32
"""Of each window."""
