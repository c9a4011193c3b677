"""`DraftOptions`: which drafter an engine has, and how long drafts may be."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from zinc_rt.errors import UsageError
from zinc_rt.utils.checks import path_text, show, whole_between

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
    """A block of the model itself that was trained to guess further tokens, or the model's assistant in a file."""


@dataclass(frozen=True)
class DraftOptions:
    """The drafter and the length of drafts; they change no text and may make it faster. Raises `UsageError`.

    spec: a `SpecKind`, or its name. None is "draft" with a draft model, else "off".
    draft_model: the file of the draft model, or of the model's assistant, or its name as for `load`.
    draft_max: guesses at once at the most; how many are used below that follows from what they gain.
    draft_min: shorter drafts are not used.
    """

    spec: str | None = None
    draft_model: str | Path | None = None
    draft_max: int = 16
    draft_min: int = 0

    def __post_init__(self) -> None:
        if self.draft_model is not None:
            object.__setattr__(self, "draft_model", Path(path_text("draft_model", self.draft_model)))
        whole_between("draft_max", self.draft_max, 1, MAX_DRAFT)
        whole_between("draft_min", self.draft_min, 0, self.draft_max)
        if self.kind is SpecKind.draft and self.draft_model is None:
            raise UsageError("spec is 'draft', which needs the file of a draft model; give one (draft_model, -md)")
        if self.kind not in (SpecKind.draft, SpecKind.mtp) and self.draft_model is not None:
            raise UsageError(f"a draft model is given, but spec is {self.kind.value!r}; give spec 'draft', or no model")

    @property
    def kind(self) -> SpecKind:
        """Where drafts come from."""
        if self.spec is None:
            return SpecKind.off if self.draft_model is None else SpecKind.draft
        return parse_kind(self.spec)


def parse_kind(name: str) -> SpecKind:
    """A kind by its name. Raises `UsageError`."""
    try:
        return SpecKind(name)
    except ValueError:
        names = ", ".join(SpecKind)
        raise UsageError(f"spec is {show(name)}; known: {names}") from None


def refuse_embedding(wish: DraftOptions) -> None:
    """Raise `UsageError` where drafts are wanted of a model that embeds texts."""
    if wish.kind is not SpecKind.off:
        raise UsageError(f"spec is {wish.kind.value!r}, but the model is loaded to embed texts and generates none")
