"""The rules for a request's fields: a record for each, from which code and docs/use/openai.md's tables come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from zinc_rt.sampling.params import Api, parameters_of
from zinc_rt.serving.api.errors import ApiError, unsupported


class FieldRule(StrEnum):
    """The rule for a field."""

    obeyed = "obeyed"
    accepted = "accepted"
    """Nothing depends on it here, and nothing is lost."""
    ignored = "ignored"
    """It would change something elsewhere; `x-zinc-ignored` names it."""
    refused = "refused"
    """400, `unsupported_parameter`: an answer without it would be another one."""


@dataclass(frozen=True, slots=True)
class ApiField:
    """One field of a request. neutral: values besides null that ask for nothing, so that they are always taken."""

    name: str
    rule: FieldRule
    note: str
    neutral: tuple[Any, ...] = ()
    own: bool = False
    """Not OpenAI's (or Anthropic's), but ours, llama.cpp's or vLLM's."""

    def asks(self, value: Any) -> bool:
        """Whether a value asks for anything."""
        return value is not None and not any(value is known or value == known for known in self.neutral)


def _obeyed(name: str, note: str) -> ApiField:
    return ApiField(name, FieldRule.obeyed, note)


def _own(name: str, note: str) -> ApiField:
    return ApiField(name, FieldRule.obeyed, note, own=True)


def _accepted(name: str, note: str) -> ApiField:
    return ApiField(name, FieldRule.accepted, note)


def _ignored(name: str, note: str, *neutral: Any) -> ApiField:
    return ApiField(name, FieldRule.ignored, note, neutral)


def _refused(name: str, note: str, *neutral: Any) -> ApiField:
    return ApiField(name, FieldRule.refused, note, neutral)


def sampling(api: Api) -> tuple[ApiField, ...]:
    """The parameters of sampling that an interface takes; those that its authors do not have come last."""
    made = [
        ApiField(row.json_name(api), FieldRule.obeyed, row.json_note(api), own=row.is_ours(api))
        for row in parameters_of(api)
    ]
    return tuple(sorted(made, key=lambda field: field.own))


LORA: Final = 'adapters by number, as `[{"id": 0, "scale": 0.5}]`; empty: those of `/lora-adapters`'

CHAT: Final = (
    _obeyed("messages", "text and pictures (`image_url`); audio and files are refused; `developer` is `system`"),
    _obeyed("model", "this server's model or one of its aliases, else 404 (`--alias '*'`: any); may be left out"),
    _refused("audio", "answers are text"),
    _refused("function_call", "replaced by `tool_choice`", "none", "auto"),
    _refused("functions", "replaced by `tools`", []),
    _obeyed("logprobs", "with the bytes of each token; minus infinity is -9999"),
    _obeyed("max_completion_tokens", "the same as `max_tokens`; omitted: until the model ends or the context is full"),
    _obeyed("max_tokens", "the older name of `max_completion_tokens`"),
    _accepted("metadata", "nothing is stored"),
    _refused("modalities", "answers are text", ["text"], []),
    _ignored("moderation", "nothing moderates"),
    _obeyed("n", "1 to 8; answer i uses `seed` + i"),
    _obeyed("parallel_tool_calls", "`false`: at most one call"),
    _accepted("prediction", "a hint for speed"),
    _accepted("prompt_cache_key", "prefixes are cached without a key"),
    _accepted("prompt_cache_options", "prefixes are cached as memory allows"),
    _accepted("prompt_cache_retention", "prefixes are cached as memory allows"),
    _obeyed("reasoning_effort", "given to the chat template; `none` also as `enable_thinking` false"),
    _obeyed("response_format", "`text`, `json_object`, `json_schema`; beyond OpenAI's `regex`, `choice`, `lark`"),
    _accepted("safety_identifier", "nothing depends on it"),
    _accepted("service_tier", "the tenant's class of service counts"),
    _obeyed("stop", "up to 16 strings of up to 256 bytes; looked for in the content"),
    _ignored("store", "nothing is stored", False),
    _obeyed("stream", "server-sent events"),
    _obeyed("stream_options", "`include_usage`; `include_obfuscation` is accepted and nothing is added"),
    _obeyed("tool_choice", "`none`, `auto`, `required`, one function by name, allowed tools"),
    _obeyed("tools", "at most 128 functions; custom tools are refused"),
    _obeyed("top_logprobs", "0 to 20, with `logprobs`"),
    _accepted("user", "nothing depends on it"),
    _ignored("verbosity", "models here are not trained for it", "medium"),
    _refused("web_search_options", "nothing searches the web"),
    *sampling(Api.openai),
    _own("chat_template_kwargs", "variables of the chat template"),
    _own("lora", LORA),
    _own("continue_final_message", "go on with the last message; omitted: where it is a text of the assistant"),
    _own("add_generation_prompt", "begin the assistant's next message; omitted: where the last one is not continued"),
)

COMPLETIONS: Final = (
    _obeyed("model", "this server's model or one of its aliases, else 404 (`--alias '*'`: any); may be left out"),
    _obeyed("prompt", "a text, token ids, or up to 64 of both"),
    _refused("best_of", "answers are not ranked; use `n`", 1),
    _obeyed("echo", "the prompt's text comes first; with `logprobs` those of its tokens, too"),
    _obeyed("logprobs", "0 to 20; minus infinity is -9999"),
    _obeyed("max_tokens", "16 where it is omitted; 0 with `echo`: nothing is generated"),
    _obeyed("n", "1 to 8; answer i uses `seed` + i"),
    _obeyed("stop", "up to 16 strings of up to 256 bytes"),
    _obeyed("stream", "server-sent events"),
    _obeyed("stream_options", "`include_usage`"),
    _refused("suffix", "nothing is inserted into a text", ""),
    _accepted("user", "nothing depends on it"),
    *sampling(Api.openai),
    _own("lora", LORA),
    _own("response_format", "as for chat completions"),
)

ANTHROPIC: Final = (
    _obeyed("model", "this server's model or one of its aliases, else 404 (`--alias '*'`: any)"),
    _obeyed(
        "messages",
        "text, images, tool use and results, thinking; a last one of the assistant is continued",
    ),
    _obeyed("max_tokens", "required"),
    _refused("container", "nothing is run"),
    _ignored("context_management", "nothing is cut from a conversation"),
    _accepted("cache_control", "prefixes are cached as memory allows"),
    _accepted("inference_geo", "the model runs where this server does"),
    _refused("mcp_servers", "no other server is called", []),
    _accepted("metadata", "nothing depends on it"),
    _obeyed("output_config", "`format` of type `json_schema`; `effort` is given to the chat template"),
    _accepted("service_tier", "the tenant's class of service counts"),
    _obeyed("stop_sequences", "up to 16 strings of up to 256 bytes"),
    _obeyed("stream", "server-sent events"),
    _obeyed("system", "a text or text blocks; a first line that begins with `x-anthropic-billing-header` is dropped"),
    _obeyed("thinking", "`enabled` and `disabled` as `enable_thinking` for the chat template; the budget is not kept"),
    _obeyed("tool_choice", "`auto`, `any`, `tool`, `none`; `disable_parallel_tool_use`"),
    _obeyed("tools", "at most 128 with an `input_schema`; others, as `web_search_*`, are skipped"),
    *sampling(Api.anthropic),
)

RESPONSES: Final = (
    _refused("background", "answers are given while they are made", False),
    _ignored("context_management", "nothing is cut from a conversation", []),
    _refused("conversation", "nothing is stored"),
    _obeyed("include", "`message.output_text.logprobs`; others are ignored"),
    _obeyed(
        "input",
        "a text or items: messages, pictures in them, function calls and outputs, reasoning, references, tools",
    ),
    _obeyed("instructions", "the first message, of the system"),
    _obeyed("max_output_tokens", "omitted: until the model ends or the context is full"),
    _ignored("max_tool_calls", "it limits calls of tools that this server does not have"),
    _obeyed("metadata", "returned"),
    _obeyed("model", "this server's model or one of its aliases, else 404 (`--alias '*'`: any); may be left out"),
    _ignored("moderation", "nothing moderates"),
    _obeyed("parallel_tool_calls", "`false`: at most one call"),
    _obeyed("previous_response_id", "the conversation of a kept response comes first; not its `instructions`"),
    _refused("prompt", "no templates of prompts are stored"),
    _accepted("prompt_cache_key", "prefixes are cached without a key"),
    _accepted("prompt_cache_options", "prefixes are cached as memory allows"),
    _accepted("prompt_cache_retention", "prefixes are cached as memory allows"),
    _obeyed("reasoning", "`effort` is given to the chat template; a summary is not made"),
    _accepted("safety_identifier", "nothing depends on it"),
    _accepted("service_tier", "the tenant's class of service counts"),
    _obeyed("store", "`false`: the response is not kept"),
    _obeyed("stream", "server-sent events"),
    _accepted("stream_options", "nothing is obfuscated"),
    _obeyed("text", "`format`: `text`, `json_object`, `json_schema`"),
    _obeyed("tool_choice", "`none`, `auto`, `required`, one function by name, allowed tools"),
    _obeyed("tools", "at most 128 functions; tools of other types are skipped"),
    _obeyed("top_logprobs", "0 to 20"),
    _obeyed("truncation", "`auto`: of a prompt that is too long the oldest turns are left out; `x-zinc-dropped` tells"),
    _accepted("user", "nothing depends on it"),
    *sampling(Api.responses),
)

EMBEDDINGS: Final = (
    _obeyed("dimensions", "keep the first elements; for models trained for it"),
    _obeyed("encoding_format", "`float` or `base64`"),
    _obeyed("input", "a text, token ids, or up to 64 of both"),
    _obeyed("model", "this server's model or one of its aliases, else 404 (`--alias '*'`: any); may be left out"),
    _accepted("user", "nothing depends on it"),
    _own("content", "another name of `input`"),
)


RERANK: Final = (
    _obeyed("documents", "1 to 1,024 texts, or objects with a `text`"),
    _obeyed("model", "this server's model or one of its aliases, else 404 (`--alias '*'`: any); may be left out"),
    _obeyed("query", "a text"),
    _obeyed("return_documents", '`true`: each result has its `document`, `{"text": ...}`'),
    _obeyed("top_n", "the best so many; all where it is omitted"),
    _accepted("user", "nothing depends on it"),
)


def judge(fields: Sequence[ApiField], given: Mapping[str, Any], strict: bool) -> tuple[dict[str, Any], list[str]]:
    """The fields to obey and the names of those that are ignored.

    Raises `ApiError` for a field that is refused; with `strict` also for one that is ignored or not known.
    """
    known = {field.name: field for field in fields}
    obeyed: dict[str, Any] = {}
    ignored: list[str] = []
    for name, value in given.items():
        field = known.get(name)
        if field is None or (field.rule is FieldRule.ignored and field.asks(value)):
            if strict:
                why = "no such field is known" if field is None else field.note
                raise ApiError(400, f"{_shown(name)}: {why}", param=_shown(name), code="unknown_parameter")
            ignored.append(_shown(name))
        elif field.rule is FieldRule.refused and field.asks(value):
            raise unsupported(name, field.note)
        elif field.rule is FieldRule.obeyed:
            obeyed[name] = value
    return obeyed, ignored


class Skipped:
    """Parts of a request that are of kinds not known here and left out of the prompt. strict: they are refused."""

    def __init__(self, strict: bool) -> None:
        self._strict = strict
        self.names: list[str] = []

    def add(self, at: str, kind: object) -> None:
        """A part was left out. at: its place, as `tools[2]`. Raises `ApiError` with `strict`."""
        said = _shown(str(kind))
        if self._strict:
            raise ApiError(400, f"{at}: its type {said!r} is not known here", param=at, code="unknown_parameter")
        if (name := f"{at.partition('[')[0]}.{said}") not in self.names:
            self.names.append(name)


def _shown(name: str) -> str:
    """A name from outside as a header and a message can hold it."""
    return "".join(c if c.isalnum() and c.isascii() else c if c in "_-." else "?" for c in name[:64])


def table(fields: Sequence[ApiField]) -> str:
    """The fields as a Markdown table, in the order of their records."""
    rows = [f"| `{f.name}`{' (own)' if f.own else ''} | {f.rule} | {f.note} |" for f in fields]
    return "\n".join(["| field | what happens | |", "|---|---|---|", *rows])
