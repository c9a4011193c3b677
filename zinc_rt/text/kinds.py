"""Which tokenizer a file has, from two short keys: asked before weights are loaded."""

from __future__ import annotations

from zinc_rt.text import metadata as md
from zinc_rt.text import pretokenizers
from zinc_rt.text.errors import TokenizerError, shown
from zinc_rt.text.vocab import KEY

KINDS = ("gpt2", "llama", "gemma4", "t5", "bert")
"""The values of `tokenizer.ggml.model` that are read here."""


def read_kind(metadata: md.Metadata) -> tuple[str, str, pretokenizers.PreTokenizer | None]:
    """The tokenizer's kind, one of `KINDS`, the name of its pre-tokenizer, and that one's row; None for those
    that cut no words.

    Raises TokenizerError for a file without a tokenizer or with names that are no text or are
    not known here.
    """
    kind = md.string(metadata, KEY + "model")
    if kind is None:
        raise TokenizerError("missing; the file has no tokenizer, only token ids can be used", key=KEY + "model")
    if kind not in KINDS:
        raise TokenizerError(f"unknown tokenizer {shown(kind)}", key=KEY + "model", value=kind).with_advice(
            f"what would run: a model with a tokenizer of kind {', '.join(KINDS)}"
        )
    pre = md.string(metadata, KEY + "pre")
    if kind == "gpt2":
        return kind, pre or "default", pretokenizers.find(pre, KEY + "pre")
    return kind, pre or "default", pretokenizers.GEMMA4 if kind == "gemma4" else None
