"""Makes requests for a model's core from the arguments of callers; all checks are here.

A request that was made can be computed: prompt, parameters, grammar and functions were checked before.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypedDict, cast

import numpy as np

from zinc_rt.engine.prompts import EmptyPrompt
from zinc_rt.errors import UsageError
from zinc_rt.llm.output_processor import OutputProcessor, TextOutput
from zinc_rt.sampling.generation import Chunk
from zinc_rt.sampling.params import SamplingOverrides, SamplingParams
from zinc_rt.sampling.processors import LogitsProcessor, Processors, check_processors
from zinc_rt.sampling.sampler import check_token_ids, seed_of
from zinc_rt.scheduler.messages import Grammar, Submit
from zinc_rt.scheduler.output import T
from zinc_rt.utils.checks import show

if TYPE_CHECKING:
    from zinc_rt.grammar.matcher import LlguidanceMatcher
    from zinc_rt.llm.chat import ChatChunk, ChatFormat
    from zinc_rt.text import Tokenizer
    from zinc_rt.vision.shown import ShownPicture

Prompt = str | Sequence[int]
"""A text, or token ids as they are."""
Prompts = list[str] | list[list[int]] | list[Prompt] | tuple[Prompt, ...]
Messages = str | Sequence[Mapping[str, Any]]
"""A conversation in OpenAI's form; a text alone is one message of the user."""


class ChatFields(TypedDict, total=False):
    """The form of an answer, and the tools that it may use: see `ChatFormat.prompt`.

    response_format: also a type, as a dataclass or a model of pydantic: the answer is JSON of it, and
    `ChatAnswer.parsed` is a value of it. tools: also functions, whose hints and docstring say what the arguments are,
    and classes.
    """

    tools: Sequence[Mapping[str, Any] | Callable[..., Any]] | None
    tool_choice: str | Mapping[str, Any] | None
    parallel_tool_calls: bool
    response_format: Mapping[str, Any] | type[Any] | None
    variables: Mapping[str, Any] | None


class ChatOptions(ChatFields, SamplingOverrides, total=False):
    """Keyword arguments of chats: `ChatFields`, and what `Model.stream` takes."""

    params: SamplingParams | None
    logits_processors: Iterable[LogitsProcessor]


@dataclass(frozen=True)
class PreparedRequest(Generic[T]):
    """A request that can be computed: its output for the caller, and the functions that change its logits."""

    output: OutputProcessor[T]
    processors: Processors


class CheckPrompt(Protocol):
    """Gives a prompt's ids as a list, where the core takes them. pictures: whether rows of some are among them."""

    def __call__(self, tokens: object, *, pictures: bool = False) -> list[int]: ...


class InputProcessor:
    """Makes the requests of one model. Threads may share it.

    Args:
        tokenizer: of the model.
        check_prompt: gives a prompt's ids as a list, where the core takes them.
        compile_grammar: raises `GrammarError`.
        chat_format: how the model converses; asked for at each chat. Raises `ChatTemplateMissing`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        check_prompt: CheckPrompt,
        compile_grammar: Callable[[Grammar], LlguidanceMatcher],
        chat_format: Callable[[], ChatFormat],
    ) -> None:
        self._tokenizer, self._check_prompt = tokenizer, check_prompt
        self._compile, self._chat_format = compile_grammar, chat_format
        self._numbers = itertools.count()
        self.adapters: Callable[[], tuple[tuple[str, float], ...]] = tuple
        """Names and scales of the adapters that requests get, asked for at each."""
        self._chats = threading.Lock()  # a chat format is not for several threads at once

    def text(
        self, prompt: Prompt, params: SamplingParams | None, processors: object, overrides: SamplingOverrides
    ) -> PreparedRequest[Chunk]:
        """A request for the text behind a prompt. Raises what `Model.stream` raises."""
        if is_chat(prompt):
            raise UsageError("the prompt is made of messages; give them to chat or chat_stream")
        if isinstance(prompt, list | tuple) and prompt and isinstance(prompt[0], str):
            raise UsageError("the prompt is a list of texts; give one text or token ids here, and several to generate")
        chosen = self._sampling(params, overrides)
        if prompt is None or isinstance(prompt, bytes | bool | int | float):
            raise UsageError(f"the prompt is {show(prompt)}; give a text or a list of token ids")
        if isinstance(prompt, str) and not prompt:
            raise EmptyPrompt("the prompt is empty; give at least one character")
        submit = self._submit(self._tokenizer.encode(prompt) if isinstance(prompt, str) else prompt, chosen)
        return PreparedRequest(TextOutput(submit, self._tokenizer, chosen.stop), check_processors(processors))

    def texts(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None,
        processors: object,
        overrides: SamplingOverrides,
    ) -> list[PreparedRequest[Chunk]]:
        """Requests for texts behind several prompts. params: of all, or one for each. Raises what `text` raises."""
        if is_chat(prompts):
            raise UsageError("the prompt is made of messages; give them to chat or chat_stream")
        if isinstance(params, list | tuple) and len(params) != len(prompts):
            raise UsageError(f"there are {len(prompts)} prompts and {len(params)} params; give one for each prompt")
        functions = check_processors(processors)
        return [self.text(prompt, own, functions, overrides) for prompt, own in with_params(prompts, params)]

    def chat(self, messages: Messages, options: ChatOptions) -> PreparedRequest[ChatChunk]:
        """A request for the answer to a conversation. Raises what `Model.chat_stream` raises."""
        from zinc_rt.llm import schemas
        from zinc_rt.llm.chat import ChatOutput

        rest: dict[str, Any] = {**options}
        fields = {name: rest.pop(name) for name in ChatFields.__annotations__ if name in rest}
        params, functions = rest.pop("params", None), check_processors(rest.pop("logits_processors", ()))
        chosen = SamplingParams.with_overrides(params, **rest)
        fields["tools"] = schemas.tool_list(fields.get("tools"))
        fields["response_format"] = schemas.response_form(fields.get("response_format"))
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        with self._chats:
            chat_format = self._chat_format()
            prompt = chat_format.prompt(messages, **fields)
            check_token_ids(chosen, self._tokenizer.n_vocab)
            if prompt.grammar is not None:
                self._compile(prompt.grammar)
        submit = self._submit(prompt.ids, chosen, prompt.grammar, prompt.pictures)
        parser = chat_format.parser(prompt, submit.seed)
        return PreparedRequest(
            ChatOutput(submit, self._tokenizer, chosen.stop, parser, chat_format.mark_ids), functions
        )

    def _sampling(self, params: SamplingParams | None, overrides: SamplingOverrides) -> SamplingParams:
        chosen = SamplingParams.with_overrides(params, **overrides)
        check_token_ids(chosen, self._tokenizer.n_vocab)  # padding rows of the embedding are no tokens
        return chosen

    def _submit(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        grammar: Grammar | None = None,
        pictures: tuple[ShownPicture, ...] = (),
    ) -> Submit:
        """Raises what `check_prompt` raises."""
        ids = tuple(self._check_prompt(prompt, pictures=bool(pictures)))
        return Submit(
            str(next(self._numbers)),
            ids,
            params,
            seed_of(params),
            grammar=grammar,
            pictures=pictures,
            adapters=self.adapters(),
        )


def with_params(
    prompts: Iterable[Prompt], params: SamplingParams | Iterable[SamplingParams] | None
) -> Iterator[tuple[Prompt, SamplingParams | None]]:
    """Each prompt with its parameters. params: of all, or one for each. Raises `UsageError`."""
    if params is None or isinstance(params, SamplingParams):
        yield from zip(prompts, itertools.repeat(params))
        return
    if not isinstance(params, Iterable) or isinstance(params, str | bytes | Mapping):
        raise UsageError(f"params is {show(params)}, it must be a SamplingParams, a list of them, or None")
    own = iter(params)
    for at, prompt in enumerate(prompts):
        if (chosen := next(own, None)) is None:
            raise UsageError(f"there are {at} params and more prompts; give one for each prompt")
        yield prompt, chosen


def prompt_list(prompt: Prompt | Prompts) -> list[Prompt] | None:
    """The prompts of a list of them; None for a single one."""
    if isinstance(prompt, list | tuple) and prompt and not is_ids(prompt):
        return cast("list[Prompt]", list(prompt))
    return None


def is_ids(prompt: Sequence[object]) -> bool:
    """Whether a list is one of token ids, and not of prompts. An empty one is not."""
    return bool(prompt) and isinstance(prompt[0], int | np.integer)


def is_chat(prompt: object) -> bool:
    """Whether a prompt is a message of a chat, or begins with one."""
    first = prompt[0] if isinstance(prompt, list | tuple) and prompt else prompt
    return isinstance(first, Mapping) and "role" in first
