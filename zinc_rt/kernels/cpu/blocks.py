"""Reading the file's blocks: weights of a group of 32 as bits, and their scales. Layouts: docs/gguf.md."""

from __future__ import annotations

from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import cast, load
from zinc_rt.lang.types import i32, ptr, u8, u16, u32


@inline
def half_at(p: ptr[u8], at: int):
    """A float16 at a byte offset, as bits."""
    return load(cast(p + at, ptr[u16]), align=1)


@inline
def word_at(p: ptr[u8], at):
    """Four bytes at an offset."""
    return load(cast(p + at, ptr[u32]), align=1)


@inline
def k_scale(scales: ptr[u8], j: i32):
    """The 6-bit scale and minimum of sub-block j from the 12 bytes of a Q4_K or Q5_K block."""
    sc: u32 = 0
    mn: u32 = 0
    if j < 4:
        sc = u32(scales[j]) & 63
        mn = u32(scales[j + 4]) & 63
    else:
        both = u32(scales[j + 4])
        sc = (both & 15) | ((u32(scales[j - 4]) >> 6) << 4)
        mn = (both >> 4) | ((u32(scales[j]) >> 6) << 4)
    return sc, mn


@inline
def group_words(block: ptr[u8], j: i32, FMT: str):
    """The group's 32 weights as unsigned bytes in 8 words of 4 consecutive columns (Q8_0: the signed bytes).

    j: the group's number within a super-block. A tuple of u32.
    """
    if FMT == "Q8_0":
        return tuple(word_at(block, 2 + 4 * i) for i in range(8))
    if FMT in ("Q4_0", "Q4_1", "Q5_0", "Q5_1"):
        at = (2 if FMT in ("Q4_0", "Q5_0") else 4) + (4 if FMT in ("Q5_0", "Q5_1") else 0)
        q = tuple(word_at(block, at + 4 * i) for i in range(4))
        words = tuple((q[i % 4] >> (4 * (i // 4))) & 0x0F0F0F0F for i in range(8))
        if FMT in ("Q4_0", "Q4_1"):
            return words
        high = word_at(block, at - 4)
        # Bit e of the 32 belongs to element e: spread a nibble's bits over four bytes, at bit 4 of each.
        return tuple(words[i] | (((((high >> (4 * i)) & 15) * 0x00204081) & 0x01010101) << 4) for i in range(8))
    if FMT in ("Q4_K", "Q5_K"):
        q = block + ((48 if FMT == "Q5_K" else 16) + (j >> 1) * 32)
        shift = u32((j & 1) * 4)
        words = tuple((word_at(q, 4 * i) >> shift) & 0x0F0F0F0F for i in range(8))
        if FMT == "Q4_K":
            return words
        return tuple(words[i] | (((word_at(block, 16 + 4 * i) >> u32(j)) & 0x01010101) << 4) for i in range(8))
    k = j & 3
    low = block + ((j >> 2) * 64 + (k & 1) * 32)
    high = block + (128 + (j >> 2) * 32)
    shift = u32((k >> 1) * 4)
    return tuple(
        ((word_at(low, 4 * i) >> shift) & 0x0F0F0F0F) | (((word_at(high, 4 * i) >> u32(2 * k)) & 0x03030303) << 4)
        for i in range(8)
    )
