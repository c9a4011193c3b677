"""Errors inside a shader core. `core` adds kernel, instruction and wave, and raises `GpuHang`."""

from __future__ import annotations


class ShaderError(Exception):
    """A program broke a rule. wave: index in the group; lane: None where all lanes are meant."""

    def __init__(self, text: str, *, wave: int | None = None, lane: int | None = None) -> None:
        super().__init__(text)
        self.wave, self.lane = wave, lane


class Unsupported(ShaderError):
    """An instruction, or a form of it, that this core does not execute."""
