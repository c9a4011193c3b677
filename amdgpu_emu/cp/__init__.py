"""The command processor of a compute queue: runs PM4 from indirect buffers and rings, strict on what is malformed."""

from amdgpu_emu.cp.position import PacketFault, PacketHang
from amdgpu_emu.cp.processor import CommandProcessor

__all__ = ["CommandProcessor", "PacketFault", "PacketHang"]
