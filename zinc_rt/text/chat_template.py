"""Chat templates from a GGUF file: messages to prompt text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zinc_rt.text import metadata as md
from zinc_rt.text import template_process
from zinc_rt.text.errors import ChatTemplateError, ChatTemplateMissing, printable, shown
from zinc_rt.text.template_limits import TemplateLimits
from zinc_rt.text.tokenizer import Tokenizer

_KEY = "tokenizer.chat_template"
_DEFAULT, _TOOL_USE = "default", "tool_use"


class ChatTemplate:
    """The chat templates of one file, usually one; some files name further ones for special uses.

    They are rendered in a process of their own, which starts at the first `render` and ends with this object.
    """

    def __init__(
        self,
        sources: Mapping[str, str],
        special_tokens: Mapping[str, str],
        chosen: str | None,
        limits: TemplateLimits | None = None,
    ) -> None:
        """`sources` are Jinja2 texts by name, `special_tokens` variables such as `bos_token`; `chosen` fixes
        the template, None leaves it to `render`. `limits`: of one rendering, None for the usual ones.
        """
        self._sources = dict(sources)
        self._special_tokens = dict(special_tokens)
        self._chosen = chosen
        self._process = template_process.take(limits or TemplateLimits())

    @classmethod
    def from_metadata(
        cls, metadata: Mapping[str, Any], tokenizer: Tokenizer, *, name: str | None = None
    ) -> ChatTemplate:
        """The templates under `tokenizer.chat_template` and `tokenizer.chat_template.<name>`.

        With `name`, that template is used for everything. Raises ChatTemplateMissing when the file has none
        or not that one, and TokenizerError when a key does not hold a string. Nothing is compiled or started yet.
        """
        sources: dict[str, str] = {}
        for key in metadata:
            if key == _KEY or key.startswith(_KEY + "."):
                source = md.string(metadata, key)
                if source:
                    sources[key.removeprefix(_KEY).removeprefix(".") or _DEFAULT] = source
        if not sources:
            raise ChatTemplateMissing(
                f"the file has no chat template ({_KEY}), so its model may not be made for chat: give it "
                "plain text, or use a file that carries a template"
            )
        if (name or _DEFAULT) not in sources and (name is not None or _TOOL_USE not in sources):
            raise ChatTemplateMissing(
                f"the file has no {shown(name or _DEFAULT)} chat template, only: {_listed(sources)}"
            )
        return cls(sources, _special_tokens(tokenizer), name)

    @classmethod
    def from_text(cls, source: str, tokenizer: Tokenizer) -> ChatTemplate:
        """A Jinja2 text for the model of this tokenizer. Nothing is compiled or started yet."""
        return cls({_DEFAULT: source}, _special_tokens(tokenizer), _DEFAULT)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the file's templates; the unnamed one is "default"."""
        return tuple(self._sources)

    def source(self, name: str = _DEFAULT) -> str:
        """The Jinja2 text of a template. Raises ChatTemplateMissing."""
        if name not in self._sources:
            raise ChatTemplateMissing(f"no {shown(name)} chat template; there are: {_listed(self._sources)}")
        return self._sources[name]

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> str:
        """The prompt text for a conversation, special tokens spelled out: encode it with `add_special=False`.

        `messages` are mappings with at least "role" and "content". `variables` (`enable_thinking=False`, ...)
        may replace `bos_token` and the like. All are made of what JSON has: str, int, float, bool, None, lists and
        mappings by str; a tuple reaches the template as a list. With `tools`, a template named "tool_use" is
        preferred. Raises ChatTemplateError for a template that does not compile, refuses the conversation, fails,
        or goes over `TemplateLimits`, and where its process cannot be started.
        """
        _check_mappings("messages", messages)
        if tools is not None:
            _check_mappings("tools", tools)
        has_tool_template = _TOOL_USE in self._sources
        use_it = has_tool_template and (bool(tools) or _DEFAULT not in self._sources)
        source = self.source(self._chosen or (_TOOL_USE if use_it else _DEFAULT))
        values = {
            **self._special_tokens,
            **variables,
            "messages": list(messages),
            "tools": list(tools) if tools is not None else None,
            "add_generation_prompt": add_generation_prompt,
        }
        return self._process.render(source, values)

    def close(self) -> None:
        """End the process that renders. A further `render` starts a new one."""
        self._process.close()


def _special_tokens(tokenizer: Tokenizer) -> dict[str, str]:
    """The variables of templates that spell out the vocabulary's special tokens."""
    tokens = {"bos_token": tokenizer.bos_id, "eos_token": tokenizer.eos_id, "unk_token": tokenizer.unk_id}
    return {key: "" if id_ is None else tokenizer.token_text(id_) for key, id_ in tokens.items()}


def _check_mappings(name: str, value: object) -> None:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, Mapping) for item in value):
        raise ChatTemplateError(f"{name} must be a list of mappings, not {shown(value)}")


def _listed(sources: Mapping[str, str]) -> str:
    return printable(", ".join(sorted(sources)))
