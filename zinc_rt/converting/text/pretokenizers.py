"""Which `tokenizer.ggml.pre` a tokenizer.json has: known by its very steps and expressions, never by likeness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from zinc_rt.converting.errors import ConvertError
from zinc_rt.utils.checks import show

_CONTRACTION: Final = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL: Final = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_BLANK: Final = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_TAIL_SLASH: Final = _TAIL.replace("[\\r\\n]*|", "[\\r\\n/]*|", 1)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _cased(tail: str = "") -> str:
    before = r"[^\r\n\p{L}\p{N}]?"
    return f"{before}{_UPPER}*{_LOWER}+{tail}|{before}{_UPPER}+{_LOWER}*{tail}"


_LLAMA3: Final = _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _TAIL
_QWEN2: Final = _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _TAIL
_QWEN35: Final = (
    _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DEEPSEEK_V3: Final = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_GPT2_WORDS: Final = "GPT-2's words"
_DIGITS: Final = "each digit"
_KNOWN: Final[Mapping[tuple[str, ...], Mapping[bool, str]]] = {
    (_GPT2_WORDS,): {False: "gpt-2"},
    (_DIGITS, _GPT2_WORDS): {False: "smollm"},
    (_LLAMA3,): {True: "llama-bpe", False: "dbrx"},
    (_QWEN2,): {False: "qwen2"},
    (_QWEN35,): {False: "qwen35"},
    (_cased() + r"|\p{N}" + _TAIL_SLASH,): {True: "tekken"},
    (_cased(_CONTRACTION + "?") + r"|\p{N}{1,3}" + _TAIL_SLASH,): {False: "gpt-4o"},
    (r"\p{N}{1,3}", "[一-龥\u3040-ゟ\u30a0-ヿ]+", _DEEPSEEK_V3): {False: "deepseek-v3"},
    (_CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}" + "\r\n" + r"]+" + _BLANK,): {
        False: "seed-coder"
    },
    (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]"
        r"|\s+(?!\S)|\s+",
    ): {False: "bailingmoe"},
    (r"\d{1,3}(?=(?:\d{3})*\b)", _cased(_CONTRACTION + "?") + r"|\p{N}{1,3}" + _TAIL_SLASH): {False: "tiny_aya"},
}
"""By the steps, and by whether a word that is a token stays whole (`ignore_merges`)."""


def pretokenizer_name(pre: Any, *, ignore_merges: bool) -> str:
    """The name for the value of `pre_tokenizer` in tokenizer.json.

    Raises `ConvertError` for one that is none of those known, or no tokenizer's.
    """
    steps = tuple(step for one in _steps(pre) for step in _meaning(one))
    found = _KNOWN.get(steps)
    if found is None or ignore_merges not in found:
        how = ", and words that are tokens stay whole" if found else ""
        raise ConvertError(
            f"tokenizer.json cuts text into words by {show(' then '.join(steps) or 'nothing')}{how}, which is none of"
            " the ways that are converted; those of Llama 3, Qwen 2 to 3.5, GPT-2, SmolLM, Mistral (tekken), GPT-4o,"
            " DeepSeek V3, Seed, Ling 2 and Tiny Aya are"
        )
    return found[ignore_merges]


def is_byte_level(pre: Any) -> bool:
    """Whether words become bytes in GPT-2's table."""
    return any(step.get("type") == "ByteLevel" for step in _steps(pre))


def _steps(pre: Any) -> list[dict[str, Any]]:
    if pre is None:
        return []
    if isinstance(pre, dict) and pre.get("type") == "Sequence":
        pre = pre.get("pretokenizers")
    steps = pre if isinstance(pre, list) else [pre]
    if not all(isinstance(step, dict) for step in steps):
        raise ConvertError("tokenizer.json has a pre_tokenizer that is none")
    return steps


def _meaning(step: Mapping[str, Any]) -> list[str]:
    """What a step does, as `_KNOWN` writes it; nothing for bytes without words."""
    kind, pattern = step.get("type"), step.get("pattern")
    if kind == "ByteLevel" and step.get("add_prefix_space") is False:
        return [_GPT2_WORDS] if step.get("use_regex", True) else []
    if kind == "Digits" and step.get("individual_digits"):
        return [_DIGITS]
    if kind == "Split" and isinstance(pattern, dict) and isinstance(pattern.get("Regex"), str):
        cut = (step.get("behavior"), step.get("invert", False))
        # The expressions that are known leave nothing between their matches, so these two are the same.
        if cut in (("Isolated", False), ("Removed", True)):
            return [pattern["Regex"]]
    return [str(dict(step))]
