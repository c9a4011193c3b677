"""The command processor of a compute queue: runs PM4 from indirect buffers and rings, strict on what is malformed."""

from zinc_rt.emu.cp.position import PacketFault, PacketHang
from zinc_rt.emu.cp.processor import CommandProcessor

__all__ = ["CommandProcessor", "PacketFault", "PacketHang"]
