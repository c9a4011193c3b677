"""`Speculation`: which drafter an engine has, and how long drafts may be."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import cast

from zinc_rt.checks import path_text, show, whole_between
from zinc_rt.errors import UsageError

MAX_DRAFT = 64
"""Tokens of a draft at the most."""


class SpecKind(StrEnum):
    """Where drafts come from."""

    off = "off"
    """There are none."""
    ngram = "ngram"
    """What followed the same last tokens earlier in prompt and text."""
    draft = "draft"
    """A small model with the same vocabulary."""
    mtp = "mtp"
    """Heads of the model itself that were trained to guess further tokens."""


@dataclass(frozen=True)
class Speculation:
    """How an engine speculates.

    kind: see `SpecKind`, or its name. model: the file of the draft model. draft_max: tokens of a draft at the most;
    how many are used below that follows from what they gain. draft_min: shorter drafts are not used.
    Raises `UsageError`.
    """

    kind: SpecKind = SpecKind.off
    model: Path | None = None
    draft_max: int = 16
    draft_min: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", parse_kind(self.kind))
        if self.model is not None:
            object.__setattr__(self, "model", Path(path_text("draft_model", self.model)))
        whole_between("draft_max", self.draft_max, 1, MAX_DRAFT)
        whole_between("draft_min", self.draft_min, 0, self.draft_max)
        if self.kind is SpecKind.draft and self.model is None:
            raise UsageError("spec is 'draft', which needs the file of a draft model; give one (draft_model, -md)")
        if self.kind is not SpecKind.draft and self.model is not None:
            raise UsageError(f"a draft model is given, but spec is {self.kind.value!r}; give spec 'draft', or no model")


def parse_kind(name: str) -> SpecKind:
    """A kind by its name. Raises `UsageError`."""
    try:
        return SpecKind(name)
    except ValueError:
        names = ", ".join(SpecKind)
        raise UsageError(f"spec is {show(name)}; known: {names}") from None


def speculation(
    kind: str | None, model: str | Path | None, draft_max: int | None, draft_min: int | None
) -> Speculation:
    """What callers of `load` ask for; None stands for the default. Raises `UsageError`."""
    chosen = (SpecKind.off if model is None else SpecKind.draft) if kind is None else parse_kind(kind)
    most = Speculation.draft_max if draft_max is None else draft_max
    least = Speculation.draft_min if draft_min is None else draft_min
    return Speculation(chosen, cast("Path | None", model), most, least)


def refuse_embedding(wish: Speculation) -> None:
    """Raise `UsageError` where drafts are wanted of a model that embeds texts."""
    if wish.kind is not SpecKind.off:
        raise UsageError(f"spec is {wish.kind.value!r}, but the model is loaded to embed texts and generates none")
