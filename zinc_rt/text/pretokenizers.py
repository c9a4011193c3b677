r"""How BPE text is cut into words before merging: one row per family of `tokenizer.ggml.pre` names.

A row is a list of regular expressions in Oniguruma syntax, applied one after the other: each cuts every piece
that the ones before it left into its matches and what lies between them. Names, grouping, expressions and
defaults are those of llama.cpp's `llama-vocab.cpp`; where upstream tokenizers write `(?i:'s|...)`, the
spelled out form is the same for every text that llama.cpp and they treat alike.
"""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.text.errors import TokenizerError, shown

_CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_BLANK = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_REST = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_BLANK}"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_UPPER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
_LOWER = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_LINES = r"[^\n]+|\n+"
_KANA_HAN = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
# Letters of scripts with two cases, as older DeepSeek models list them.
_CASED = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)


def _cased_words(tail: str = "", *, no: str = "") -> str:
    """Words that break where a capital follows a small letter. tail: what may end a word; no: letters left out."""
    upper, lower = (f"[{kinds}&&[^{no}]]" if no else f"[{kinds}]" for kinds in (_UPPER, _LOWER))
    before = r"[^\r\n\p{L}\p{N}]?"  # tried with the first form, then without, and only then with the second form
    return f"{before}{upper}*{lower}+{tail}|{before}{upper}+{lower}*{tail}"


def _cased(digits: str, tail: str = "") -> str:
    return rf"{_cased_words(tail)}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_BLANK}"


def _marks(newlines: str = r"[\r\n]*", blank: str = _BLANK) -> str:
    """Words with combining marks; a word may begin with one character of ASCII punctuation."""
    ascii_marks = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"""
    words = rf"{ascii_marks}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
    return rf"{words}| ?[\p{{P}}\p{{S}}]+{newlines}|{blank}"


@dataclass(frozen=True)
class PreTokenizer:
    """One way to cut text into words, with what llama.cpp ties to it."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False  # a word that is a token stays whole, even where merges would not build it
    add_bos: bool = False  # what holds when the file has no tokenizer.ggml.add_bos_token
    add_sep: bool = False  # the same of tokenizer.ggml.add_sep_token
    raw: bool = False  # tokens are text with U+2581 for a space, and not bytes in GPT-2's table


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
_ROBERTA = PreTokenizer((_GPT2,), add_sep=True)
_SMOLLM = PreTokenizer((r"\p{N}", _GPT2))
_DEFAULT = PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))
_FALCON = PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]"))
_TEKKEN = PreTokenizer((_cased(r"\p{N}"),), ignore_merges=True, add_bos=True)
_GPT_4O = PreTokenizer((_cased(r"\p{N}{1,3}", f"{_CONTRACTION}?"),))
_GPT_4O_WHOLE = PreTokenizer(_GPT_4O.patterns, ignore_merges=True)
_YOUTU = PreTokenizer(
    (
        "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
        "|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        _cased(r"\p{N}", f"{_CONTRACTION}?"),
    ),
    ignore_merges=True,
)
_KIMI_K2 = PreTokenizer(
    (rf"\p{{Han}}+|{_cased_words(f'{_CONTRACTION}?', no=chr(92) + 'p{Han}')}|\p{{N}}{{1,3}}|{_REST}",)
)
_DEEPSEEK_LLM = PreTokenizer(
    (
        r"[\r\n]",
        rf"\s?[{_CASED}]+",
        "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
        r"(?<!\s)\s++\z",
        _CJK,
        r"\p{N}+",
    )
)
_DEEPSEEK_CODER = PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}"))
_DEEPSEEK_V3 = PreTokenizer((r"\p{N}{1,3}", _KANA_HAN, _marks()))
_SPARK = PreTokenizer((r"\p{N}{1,3}", _KANA_HAN, _marks("", r"[\r\n]|\s+(?!\S)|\s+"), r"\p{N}"))
_SEED_CODER = PreTokenizer((rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+|{_BLANK}",))
_BAILING = PreTokenizer(
    (
        rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+",
    )
)
_EXAONE_MOE = PreTokenizer(
    (
        rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
    )
)
_MINICPM5 = PreTokenizer(
    (r"\p{N}{1,3}", rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}+|{_REST}"), ignore_merges=True
)
_LAGUNA = PreTokenizer((_LINES, *_QWEN2.patterns))
_UFAKZEKA = PreTokenizer((rf"[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_REST}",))
_BLOOM = PreTokenizer((" ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+",))
_VIKING = PreTokenizer((*_BLOOM.patterns, r"\p{N}"))
_JAIS_2 = PreTokenizer(
    (
        rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|"
        + "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4, "1,2"))
        + r"|\s",
    )
)
# Numbers are cut into threes from their ends: the rest in front, then threes. Both steps read a number once; a
# lookahead at each three would take time by the square of its length.
_THREES = r"\A{0}{{1,2}}(?=(?:{0}{{3}})+\z)"
_AFMOE = PreTokenizer(
    (
        r"\p{N}+",
        _THREES.format(r"\p{N}") + r"|\p{N}{1,3}",
        "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ud7ff\ue000-\ufaff\u3040-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0eff"
        "\u1780-\u17ff\u1000-\u109f\u1100-\u11ff]+",  # U+8C48, which U+F900 is composed to, begins a range
        _marks(),
    )
)
_TINY_AYA = PreTokenizer((r"(?<!\d)\d++\b", _THREES.format(r"\d"), *_GPT_4O.patterns))
GEMMA4 = PreTokenizer((_LINES,), add_bos=True, raw=True)
"""What a file of tokenizer model "gemma4" has, whatever pre-tokenizer it names."""

_FAMILIES: tuple[tuple[PreTokenizer, tuple[str, ...]], ...] = (
    (_LLAMA3, ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
               "jina-v5-nano")),
    (_LLAMA3_PLAIN, ("dbrx", "smaug-bpe", "chatglm-bpe")),
    (_LLAMA3_WHOLE, ("glm4", "glm5")),
    (
        _QWEN2,
        ("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan", "solar-open",
         "grok-2"),
    ),
    (_QWEN35, ("qwen35",)),
    (_TEKKEN, ("tekken",)),
    (_GPT_4O, ("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2")),
    (_GPT_4O_WHOLE, ("granite-embed-multi-97m",)),
    (_DEEPSEEK_V3, ("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4")),
    (_DEEPSEEK_LLM, ("deepseek-llm",)),
    (_DEEPSEEK_CODER, ("deepseek-coder",)),
    (_SEED_CODER, ("seed-coder",)),
    (_KIMI_K2, ("kimi-k2",)),
    (
        _GPT_2,
        ("gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum", "exaone4", "mpt", "olmo", "jais", "trillion",
         "granite-docling", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "modern-bert"),
    ),
    (_ROBERTA, ("roberta-bpe", "jina-v1-en", "jina-v2-code")),
    (_SMOLLM, ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2")),
    (_FALCON, ("falcon",)),
    (_BAILING, ("bailingmoe", "bailingmoe2", "llada-moe")),
    (_EXAONE_MOE, ("exaone-moe",)),
    (_YOUTU, ("youtu",)),
    (_MINICPM5, ("minicpm5",)),
    (_LAGUNA, ("laguna",)),
    (_AFMOE, ("afmoe",)),
    (_TINY_AYA, ("tiny_aya", "cohere2moe")),
    (_UFAKZEKA, ("ufakzeka",)),
    (_SPARK, ("spark2_5",)),
    (_JAIS_2, ("jais-2",)),
    (_BLOOM, ("bloom", "poro-chat", "gpt3-finnish")),
    (_VIKING, ("viking",)),
    (GEMMA4, ("gemma4", "granite-embed-multi-311m")),
    (_DEFAULT, ("default",)),
)  # fmt: skip

PRE_TOKENIZERS: dict[str, PreTokenizer] = {name: row for row, names in _FAMILIES for name in names}


def find(pre: str | None, key: str) -> PreTokenizer:
    """The row for a `tokenizer.ggml.pre` value; none or an empty one means the default, as in llama.cpp.

    Raises TokenizerError, which names `key` and the value, and advises what is supported.
    """
    row = PRE_TOKENIZERS.get(pre or "default")
    if row is None:
        raise TokenizerError(f"unknown pre-tokenizer {shown(pre)}", key=key, value=pre).with_advice(
            f"what would run: a model with the pre-tokenizer {', '.join(names[0] for _, names in _FAMILIES)},"
            " or with another name of these (docs/how/tokenizers.md)"
        )
    return row
