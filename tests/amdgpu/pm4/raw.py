"""Dwords that the builder does not write: malformed packets, and others that it has no method for."""

from __future__ import annotations

from collections.abc import Sequence

from zinc_rt.amdgpu.pm4.builder import PacketBuilder


def words_raw(builder: PacketBuilder, words: Sequence[int]) -> None:
    """Append dwords as they are."""
    assert len(words) <= builder.space
    for word in words:
        builder.words[builder.cursor] = int(word)
        builder.cursor += 1
