"""What the numbers in packets' fields are called. Sources: amdgpu's packet headers (nvd.h) and traced streams.

`*_OBSOLETE`, `*_GRBM` and the like keep the headers' words: a stream that uses them should be recognisable.
"""

from __future__ import annotations

from enum import IntEnum


class WriteDst(IntEnum):
    """WRITE_DATA dst_sel."""

    REGISTER = 0
    MEMORY_GRBM = 1  # never writes on gfx12: seen dead
    L2 = 2
    GDS = 3
    MEMORY = 5


class CopySrc(IntEnum):
    """COPY_DATA src_sel."""

    REGISTER = 0
    L2_OBSOLETE = 1  # memory as well; drivers of old still write it
    L2 = 2
    GDS = 3
    PERF_COUNTER = 4
    IMMEDIATE = 5
    ATOMIC_RETURN = 6
    GDS_ATOMIC_RETURN_0 = 7
    GDS_ATOMIC_RETURN_1 = 8
    GPU_CLOCK = 9
    SYSTEM_CLOCK = 10


class CopyDst(IntEnum):
    """COPY_DATA dst_sel."""

    REGISTER = 0
    MEMORY_GRBM = 1
    L2 = 2
    GDS = 3
    PERF_COUNTER = 4
    MEMORY = 5
    REGISTER_DC = 6


class EngineSelect(IntEnum):
    """Which part of the command processor runs a packet. A compute queue has one: ME."""

    ME = 0
    PFP = 1
    CE = 2


class CachePolicy(IntEnum):
    """How an access of the command processor uses the L2 cache, before gfx12."""

    LRU = 0
    STREAM = 1
    NOA = 2
    BYPASS = 3


class Temporal(IntEnum):
    """The same bits on gfx12: how soon the data is used again, regular, not, often, or for the last time. None of them
    passes the L2 by; only the page's memory type does (UC).
    """

    RT = 0
    NT = 1
    HT = 2
    LU = 3


class Compare(IntEnum):
    """WAIT_REG_MEM function: the masked value against the reference, unsigned."""

    ALWAYS = 0
    LESS = 1
    LESS_EQUAL = 2
    EQUAL = 3
    NOT_EQUAL = 4
    GREATER_EQUAL = 5
    GREATER = 6


class PollSpace(IntEnum):
    """WAIT_REG_MEM mem_space."""

    REGISTER = 0
    MEMORY = 1


class WaitOperation(IntEnum):
    """WAIT_REG_MEM operation."""

    WAIT = 0
    WRITE_WAIT = 1
    WAIT_PREEMPTIBLE = 3


class EventType(IntEnum):
    """Events of EVENT_WRITE and RELEASE_MEM that compute queues use."""

    CACHE_FLUSH_TS = 0x04
    CONTEXT_DONE = 0x05
    CACHE_FLUSH = 0x06
    CS_PARTIAL_FLUSH = 0x07
    CACHE_FLUSH_AND_INV_TS = 0x14
    CACHE_FLUSH_AND_INV = 0x16
    PERFCOUNTER_START = 0x17
    PERFCOUNTER_STOP = 0x18
    PIPELINESTAT_START = 0x19
    PIPELINESTAT_STOP = 0x1A
    PERFCOUNTER_SAMPLE = 0x1B
    SAMPLE_PIPELINESTAT = 0x1E
    BOTTOM_OF_PIPE_TS = 0x28
    CS_DONE = 0x2F
    THREAD_TRACE_START = 0x33
    THREAD_TRACE_STOP = 0x34
    THREAD_TRACE_FINISH = 0x37


class EventIndex(IntEnum):
    """The group an event is in."""

    OTHER = 0
    ZPASS_DONE = 1
    SAMPLE_PIPELINESTAT = 2
    SAMPLE_STREAMOUT = 3
    PARTIAL_FLUSH = 4
    END_OF_PIPE = 5
    END_OF_SHADER = 6


class ReleaseDst(IntEnum):
    """RELEASE_MEM dst_sel."""

    MEMORY = 0
    L2 = 1


class ReleaseInt(IntEnum):
    """RELEASE_MEM int_sel."""

    NONE = 0
    INTERRUPT = 1
    AFTER_WRITE = 2


class ReleaseData(IntEnum):
    """RELEASE_MEM data_sel."""

    NONE = 0
    LOW32 = 1
    WORD64 = 2
    GPU_CLOCK = 3
    SYSTEM_CLOCK = 4


class Sequence(IntEnum):
    """In which order a cache request visits the caches."""

    PARALLEL = 0
    FORWARD = 1
    REVERSE = 2


class CodeInv(IntEnum):
    """ACQUIRE_MEM gli_inv: what of the instruction cache is dropped."""

    NONE = 0
    ALL = 1
    RANGE = 2
    FIRST_LAST = 3


class Range(IntEnum):
    """Which part of a cache a request of ACQUIRE_MEM concerns."""

    ALL = 0
    VOLATILE = 1
    RANGE = 2
    FIRST_LAST = 3


class LoadIndex(IntEnum):
    """LOAD_SH_REG_INDEX: what the address is."""

    ADDRESS = 0
    OFFSET = 1


class LoadFormat(IntEnum):
    """LOAD_SH_REG_INDEX: what the memory holds."""

    VALUES = 0
    OFFSETS_AND_VALUES = 1


class Count(IntEnum):
    """COPY_DATA: how much is copied."""

    DWORD = 0
    QWORD = 1
