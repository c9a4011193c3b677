"""The page `pm4_packet`: the builder of PM4 packets. `zinc_rt.amdgpu.pm4` has the table behind it, and the decoder."""

from zinc_rt.amdgpu.pm4.builder import DISPATCH_INITIATOR_COMPUTE, PacketBuilder, hi32, lo32
from zinc_rt.amdgpu.pm4.errors import OutOfSpace
from zinc_rt.amdgpu.pm4.registers import NUM_THREAD_X as SH_REG_NUM_THREAD_X
from zinc_rt.amdgpu.pm4.registers import PGM_LO as SH_REG_PGM_LO
from zinc_rt.amdgpu.pm4.registers import PGM_RSRC1 as SH_REG_PGM_RSRC1
from zinc_rt.amdgpu.pm4.registers import PGM_RSRC3 as SH_REG_PGM_RSRC3
from zinc_rt.amdgpu.pm4.registers import RESOURCE_LIMITS as SH_REG_RESOURCE_LIMITS
from zinc_rt.amdgpu.pm4.registers import USER_DATA_0 as COMPUTE_USER_DATA_0

Error = OutOfSpace

__all__ = [
    "COMPUTE_USER_DATA_0",
    "DISPATCH_INITIATOR_COMPUTE",
    "SH_REG_NUM_THREAD_X",
    "SH_REG_PGM_LO",
    "SH_REG_PGM_RSRC1",
    "SH_REG_PGM_RSRC3",
    "SH_REG_RESOURCE_LIMITS",
    "Error",
    "OutOfSpace",
    "PacketBuilder",
    "hi32",
    "lo32",
]
