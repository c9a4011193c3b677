"""The page `ring`: what runs a graph behind one interface."""

from zinc_rt.backends.base import Backend as Ring
from zinc_rt.backends.base import Capacity as Sizes
from zinc_rt.backends.base import LoweredGraph as PacketBatch
from zinc_rt.backends.base import StepFence as Fence

__all__ = ["Fence", "PacketBatch", "Ring", "Sizes"]
