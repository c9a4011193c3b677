r"""How BPE text is cut into words before merging: one row per family of `tokenizer.ggml.pre` names.

A row is a list of regular expressions in Oniguruma syntax, applied one after the other: each cuts every piece
that the ones before it left into its matches and what lies between them. Names, grouping, expressions and
defaults are those of llama.cpp's `llama-vocab.cpp`; where upstream tokenizers write `(?i:'s|...)`, the
spelled out form is the same for every text that llama.cpp and they treat alike.
"""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.text.errors import UnsupportedTokenizer, shown

_CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class PreTokenizer:
    """One way to cut text into words, with what llama.cpp ties to it."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False  # a word that is a token stays whole, even where merges would not build it
    add_bos: bool = False  # what holds when the file has no tokenizer.ggml.add_bos_token


_LLAMA3 = PreTokenizer(
    (rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_REST}",),
    ignore_merges=True,
    add_bos=True,
)
_LLAMA3_PLAIN = PreTokenizer(_LLAMA3.patterns)
_LLAMA3_WHOLE = PreTokenizer(_LLAMA3.patterns, ignore_merges=True)
_QWEN2 = PreTokenizer((rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_REST}",))
_QWEN35 = PreTokenizer(
    (
        rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
        r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    )
)
_GPT_2 = PreTokenizer((_GPT2,))
_SMOLLM = PreTokenizer((r"\p{N}", _GPT2))
_DEFAULT = PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))

_FAMILIES: tuple[tuple[PreTokenizer, tuple[str, ...]], ...] = (
    (_LLAMA3, ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2")),
    (_LLAMA3_PLAIN, ("dbrx", "smaug-bpe", "chatglm-bpe")),
    (_LLAMA3_WHOLE, ("glm4", "glm5")),
    (
        _QWEN2,
        ("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan", "solar-open",
         "grok-2"),
    ),
    (_QWEN35, ("qwen35",)),
    (
        _GPT_2,
        ("gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum", "exaone4", "mpt", "olmo", "jais", "trillion",
         "granite-docling", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "modern-bert"),
    ),
    (_SMOLLM, ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2")),
    (_DEFAULT, ("default",)),
)  # fmt: skip

PRE_TOKENIZERS: dict[str, PreTokenizer] = {name: row for row, names in _FAMILIES for name in names}


def find(pre: str | None, key: str) -> PreTokenizer:
    """The row for a `tokenizer.ggml.pre` value; none or an empty one means the default, as in llama.cpp.

    Raises UnsupportedTokenizer, naming `key`, the value and what is supported.
    """
    row = PRE_TOKENIZERS.get(pre or "default")
    if row is None:
        raise UnsupportedTokenizer(
            f"unknown pre-tokenizer {shown(pre)}; supported: {', '.join(PRE_TOKENIZERS)}", key=key, value=pre
        )
    return row
