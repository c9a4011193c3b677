"""Rings: the tiers behind one interface. `base` states the contract."""

from zinc_rt.ring.base import Fence, Ring, Sizes
from zinc_rt.ring.packet_list import Packet, PacketBatch, PacketList

__all__ = ["Fence", "Packet", "PacketBatch", "PacketList", "Ring", "Sizes"]
