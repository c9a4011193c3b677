"""The page `ring`: what runs a graph behind one interface."""

from zinc_rt.amdgpu.fence import Fence
from zinc_rt.backends.base import Backend as Ring
from zinc_rt.backends.base import Capacity as Sizes
from zinc_rt.backends.packet_list import LoweredGraph as PacketBatch
from zinc_rt.backends.packet_list import Packet, PacketList

__all__ = ["Fence", "Packet", "PacketBatch", "PacketList", "Ring", "Sizes"]
