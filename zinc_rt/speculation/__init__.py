"""Speculation: the next tokens of a text are guessed, and one step computes the rows behind all guesses at once."""

from zinc_rt.speculation.drafter import Drafter, DraftText
from zinc_rt.speculation.options import DraftOptions, SpecKind

__all__ = ["DraftOptions", "DraftText", "Drafter", "SpecKind"]
