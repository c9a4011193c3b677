"""PM4, the packets of AMD's command processors: one table of them, a builder, a decoder. No device, no allocation."""

from zinc_rt.amdgpu.pm4.builder import PacketBuilder, hi32, lo32
from zinc_rt.amdgpu.pm4.decoder import DecodedPacket, decode, render
from zinc_rt.amdgpu.pm4.errors import InvalidField, OutOfSpace

__all__ = [
    "DecodedPacket",
    "InvalidField",
    "OutOfSpace",
    "PacketBuilder",
    "decode",
    "hi32",
    "lo32",
    "render",
]
