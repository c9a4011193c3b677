"""The families, and which of them a model belongs to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from zinc_rt.dialects.forms.gemma import GemmaCalls
from zinc_rt.dialects.forms.json_calls import JsonCalls
from zinc_rt.dialects.forms.named import NamedCalls
from zinc_rt.dialects.forms.python_calls import PythonCalls
from zinc_rt.dialects.forms.tagged import TaggedCalls
from zinc_rt.dialects.forms.telling import CallShape
from zinc_rt.dialects.record import Dialect
from zinc_rt.text.harmony import ATEM, HARMONY

if TYPE_CHECKING:
    from zinc_rt.text import Tokenizer

_BAR, _UNDER = "\uff5c", "\u2581"  # in DeepSeek's marks


def _deepseek(name: str) -> str:
    return f"<{_BAR}{name.replace('_', _UNDER)}{_BAR}>"


PLAIN: Final = Dialect("plain")
HERMES: Final = Dialect("hermes", JsonCalls("<tool_call>", "</tool_call>", edge="\n"))
QWEN3_CODER: Final = Dialect("qwen3-coder", TaggedCalls("<tool_call>", "</tool_call>"))
LLAMA3: Final = Dialect("llama3", JsonCalls("<|python_tag|>", arguments="parameters", bare=True), parallel=False)
MISTRAL: Final = Dialect("mistral", JsonCalls("[TOOL_CALLS]", listed=True), short_ids=True)
MISTRAL_NAMED: Final = Dialect("mistral-named", NamedCalls("[TOOL_CALLS]", "[ARGS]"), short_ids=True)
MISTRAL_IDS: Final = Dialect("mistral-ids", NamedCalls("[TOOL_CALLS]", "[ARGS]", split="[CALL_ID]"), short_ids=True)
GEMMA4: Final = Dialect(
    "gemma-4", GemmaCalls("<|tool_call>", "<tool_call|>", '<|"|>'), think=("<|channel>thought", "<channel|>")
)
FUNCTION_GEMMA: Final = Dialect("functiongemma", GemmaCalls("<start_function_call>", "<end_function_call>", "<escape>"))
GPT_OSS: Final = Dialect("harmony", messages=HARMONY, parallel=False)
MUSE: Final = Dialect(
    "muse-glimmer",
    TaggedCalls(
        "<atem:function_calls>",
        "</atem:function_calls>",
        function=('<atem:invoke name="', '">', "</atem:invoke>"),
        parameter=('<atem:parameter name="', '">', "</atem:parameter>"),
        lines=False,
        section=True,
    ),
    messages=ATEM,
)
PHI4: Final = Dialect("phi4", JsonCalls("<|tool_call|>", "<|/tool_call|>", listed=True))
GRANITE: Final = Dialect("granite-3", JsonCalls("<|tool_call|>", listed=True))
DEEPSEEK: Final = Dialect(
    "deepseek",
    NamedCalls(
        _deepseek("tool_calls_begin"),
        _deepseek("tool_sep"),
        open=_deepseek("tool_call_begin"),
        close=_deepseek("tool_call_end"),
        end=_deepseek("tool_calls_end"),
    ),
)
DEEPSEEK_R1: Final = Dialect(
    "deepseek-r1",
    NamedCalls(
        _deepseek("tool_calls_begin"),
        "\n```json\n",
        open=_deepseek("tool_call_begin"),
        prefix=_deepseek("tool_sep"),
        tail="\n```",
        close=_deepseek("tool_call_end"),
        end=_deepseek("tool_calls_end"),
    ),
)

SEED: Final = Dialect("seed", TaggedCalls("<seed:tool_call>", "</seed:tool_call>", lines=False))
MINIMAX: Final = Dialect(
    "minimax-m2",
    TaggedCalls(
        "<minimax:tool_call>",
        "</minimax:tool_call>",
        function=('<invoke name="', '">', "</invoke>"),
        parameter=('<parameter name="', '">', "</parameter>"),
        lines=False,
        section=True,
    ),
)
_ARGUMENT: Final = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")


def _glm(name: str, feed: str) -> Dialect:
    open, behind, before, close = _ARGUMENT
    none = "", "", ""
    tags = open, f"{behind}{feed}{before}", close
    form = TaggedCalls("<tool_call>", "</tool_call>", none, tags, lines=False, feed=feed, inner=_ARGUMENT)
    return Dialect(name, form)


GLM: Final = _glm("glm", "\n")
GLM_TIGHT: Final = _glm("glm-4.7", "")
_DSML: Final = f"{_BAR}DSML{_BAR}"


def _dsml(name: str, section: str) -> Dialect:
    return Dialect(
        name,
        TaggedCalls(
            f"<{_DSML}{section}>",
            f"</{_DSML}{section}>",
            function=(f'<{_DSML}invoke name="', '">', f"</{_DSML}invoke>"),
            parameter=(f'<{_DSML}parameter name="', '" string="true">', f"</{_DSML}parameter>"),
            json='" string="false">',
            lines=False,
            section=True,
            inner=(_DSML,),
        ),
    )


DEEPSEEK_V32: Final = _dsml("deepseek-v3.2", "function_calls")
DEEPSEEK_V4: Final = _dsml("deepseek-v4", "tool_calls")
NEMOTRON: Final = Dialect("nemotron-2", JsonCalls("<TOOLCALL>", "</TOOLCALL>", listed=True))
KIMI: Final = Dialect(
    "kimi-k2",
    NamedCalls(
        "<|tool_calls_section_begin|>",
        "<|tool_call_argument_begin|>",
        open="<|tool_call_begin|>",
        close="<|tool_call_end|>",
        end="<|tool_calls_section_end|>",
        space="functions.",
    ),
)

COMMAND: Final = Dialect(
    "command-r7b",
    JsonCalls(
        "<|START_ACTION|>",
        "<|END_ACTION|>",
        arguments="parameters",
        listed=True,
        shape=CallShape("tool_name", "tool_call_id"),
    ),
)
APERTUS: Final = Dialect("apertus", JsonCalls("<|tools_prefix|>", "<|tools_suffix|>", listed=True, shape=CallShape("")))
LFM2: Final = Dialect("lfm2", PythonCalls("<|tool_call_start|>", "<|tool_call_end|>"))
HUNYUAN: Final = Dialect("hunyuan", JsonCalls("<tool_calls>", "</tool_calls>", listed=True))

FAMILIES: Final = (
    PLAIN, HERMES, QWEN3_CODER, SEED, MINIMAX, NEMOTRON, KIMI, COMMAND, APERTUS, LFM2, HUNYUAN,
    LLAMA3, MISTRAL, MISTRAL_NAMED, MISTRAL_IDS, GEMMA4,
    FUNCTION_GEMMA, GPT_OSS, MUSE, PHI4, GRANITE, DEEPSEEK, DEEPSEEK_R1, DEEPSEEK_V32, DEEPSEEK_V4, GLM, GLM_TIGHT,
)  # fmt: skip

_THINKING: Final = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
)


def dialect_of(tokenizer: Tokenizer, template: str | None) -> Dialect:
    """The dialect of a model, from its vocabulary and the text of its chat template (None: it has none).

    A model whose template takes no tools makes no calls. Marks of reasoning are those that the template or, as a token,
    the vocabulary has.
    """
    for family in (GPT_OSS, MUSE):
        if family.messages is not None and family.messages.spoken(tokenizer):
            return family
    text = template or ""
    family = _by_calls(tokenizer, text) if "tools" in text else PLAIN
    if family.think is not None:
        return family
    if tokenizer.token_id("<|tool_call>") is not None and tokenizer.token_id("<|channel>") is not None:
        return replace(family, think=GEMMA4.think)
    for begin, end in _THINKING:
        if end in text or (tokenizer.token_id(begin) is not None and tokenizer.token_id(end) is not None):
            return replace(family, think=(begin, end))
    return family


def _by_calls(tokenizer: Tokenizer, text: str) -> Dialect:
    """The family by its marks of calls, those that are in no other's template first."""
    for family in (SEED, MINIMAX, NEMOTRON, KIMI, COMMAND, APERTUS, LFM2):  # whose first marks no other family has
        if family.calls is not None and family.calls.begin in text:
            return family
    if tokenizer.token_id("<|tool_call_start|>") is not None:  # some templates of LFM2 do not write calls
        return LFM2
    if "<|tool_call>" in text:
        return GEMMA4
    if "<start_function_call>" in text:
        return FUNCTION_GEMMA
    if _DSML in text:
        return DEEPSEEK_V4 if "tool_calls>" in text else DEEPSEEK_V32
    if _deepseek("tool_calls_begin") in text:
        return DEEPSEEK_R1 if "```json" in text else DEEPSEEK
    if "[TOOL_CALLS]" in text:
        if "[ARGS]" not in text:
            return MISTRAL
        return MISTRAL_IDS if "[CALL_ID]" in text else MISTRAL_NAMED
    if "<tool_calls>" in text and "<tool_call>" not in text:
        return HUNYUAN
    if "<tool_call>" in text:
        if "<arg_key>" in text:
            return GLM_TIGHT if "</arg_key><arg_value>" in text else GLM
        return QWEN3_CODER if "<function=" in text else HERMES
    if "<|tool_call|>" in text:
        return PHI4 if "<|/tool_call|>" in text or tokenizer.token_id("<|/tool_call|>") is not None else GRANITE
    if tokenizer.token_id("<|python_tag|>") is not None and '"parameters"' in text:
        return LLAMA3
    return PLAIN
