"""From what a caller asks of a model to a request that its core takes; everything is checked here.

A request that was made is one that can be computed: prompt, parameters, grammar and functions are looked at before.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from zinc_rt.checks import show
from zinc_rt.chunks import PlainText, TokenText
from zinc_rt.errors import UsageError
from zinc_rt.prompts import EmptyPrompt, check_fits, check_ids
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.processors import Processors, check_processors
from zinc_rt.sampling.sampler import Sampler
from zinc_rt.serving.messages import Grammar, Submit

if TYPE_CHECKING:
    from zinc_rt.chat import ChatFormat, ReadTokens
    from zinc_rt.grammar.matcher import Matcher
    from zinc_rt.text import Tokenizer

Prompt = str | Sequence[int]
"""A text, or token ids as they are."""
Prompts = list[str] | list[list[int]] | list[Prompt] | tuple[Prompt, ...]
Messages = str | Sequence[Mapping[str, Any]]
"""A conversation in OpenAI's form; a text alone is one message of the user."""


@dataclass(frozen=True)
class Asked:
    """A request that can be computed, what makes text of its tokens, and the functions that change its logits."""

    submit: Submit
    text: TokenText
    processors: Processors


@dataclass(frozen=True)
class AskedChat(Asked):
    """A request for an answer, which `text` takes apart."""

    text: ReadTokens


class Requests:
    """Makes the requests of one model. Threads may share it.

    Args:
        tokenizer: of the model.
        n_ctx: tokens of prompt and text together.
        compile_grammar: raises `GrammarError`.
        chat_format: how the model converses; asked for at each chat. Raises `ChatTemplateMissing`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        n_ctx: int,
        compile_grammar: Callable[[Grammar], Matcher],
        chat_format: Callable[[], ChatFormat],
    ) -> None:
        self._tokenizer, self._n_ctx = tokenizer, n_ctx
        self._compile, self._chat_format = compile_grammar, chat_format
        self._numbers = itertools.count()
        self._chats = threading.Lock()  # a chat format is not for several threads at once

    def plain(
        self, prompt: Prompt, params: SamplingParams | None, processors: object, overrides: Mapping[str, Any]
    ) -> Asked:
        """A request for the text behind a prompt. Raises what `Model.stream` raises."""
        if is_chat(prompt):
            raise UsageError("the prompt is made of messages; give them to chat or chat_stream")
        if isinstance(prompt, list | tuple) and prompt and isinstance(prompt[0], str):
            raise UsageError("the prompt is a list of texts; give one text or token ids here, and several to generate")
        chosen = SamplingParams.with_overrides(params, **overrides)
        sampler = Sampler(chosen, self._tokenizer.n_vocab)  # padding rows of the embedding are no tokens
        if prompt is None or isinstance(prompt, bytes | bool | int | float):
            raise UsageError(f"the prompt is {show(prompt)}; give a text or a list of token ids")
        if isinstance(prompt, str) and not prompt:
            raise EmptyPrompt("the prompt is empty; give at least one character")
        ids = self._room(self._tokenizer.encode(prompt) if isinstance(prompt, str) else prompt)
        text = PlainText(self._tokenizer, chosen.stop)
        return Asked(self._submit(ids, chosen, sampler.seed), text, check_processors(processors))

    def several(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None,
        processors: object,
        overrides: Mapping[str, Any],
    ) -> list[Asked]:
        """Requests for texts behind several prompts. params: of all, or one for each. Raises what `plain` raises."""
        if is_chat(prompts):
            raise UsageError("the prompt is made of messages; give them to chat or chat_stream")
        if params is None or isinstance(params, SamplingParams):
            chosen: Sequence[SamplingParams | None] = [params] * len(prompts)
        elif isinstance(params, list | tuple):
            chosen = params
        else:
            raise UsageError(f"params is {show(params)}, it must be a SamplingParams, a list of them, or None")
        if len(chosen) != len(prompts):
            raise UsageError(f"there are {len(prompts)} prompts and {len(chosen)} params; give one for each prompt")
        functions = check_processors(processors)
        return [self.plain(text, own, functions, overrides) for text, own in zip(prompts, chosen, strict=True)]

    def chat(
        self,
        messages: Messages,
        fields: Mapping[str, Any],
        params: SamplingParams | None,
        processors: object,
        overrides: Mapping[str, Any],
    ) -> AskedChat:
        """A request for the answer to a conversation. fields: of `ChatFormat.request`. Raises what `Model.chat_stream`
        raises.
        """
        from zinc_rt.chat import ReadTokens

        chosen, functions = SamplingParams.with_overrides(params, **overrides), check_processors(processors)
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        with self._chats:
            form = self._chat_format()
            request = form.request(messages, **fields)
            sampler = Sampler(chosen, self._tokenizer.n_vocab)
            if request.grammar is not None:
                self._compile(request.grammar)
            text = ReadTokens(form.reader(request, chosen.stop, request.salt(sampler.seed)))
        ids = self._room(request.prompt)
        return AskedChat(self._submit(ids, chosen, sampler.seed, request.grammar), text, functions)

    def _submit(self, ids: Sequence[int], params: SamplingParams, seed: int, grammar: Grammar | None = None) -> Submit:
        return Submit(str(next(self._numbers)), tuple(ids), params, seed, grammar=grammar)

    def _room(self, prompt: Sequence[int]) -> list[int]:
        """A prompt's ids, with room for an answer. Raises `EmptyPrompt`, `PromptTooLong`, `TokenOutOfRange`."""
        ids = check_ids(prompt, self._tokenizer.n_vocab)
        check_fits(ids, self._n_ctx)
        return ids


def several(prompt: Prompt | Prompts) -> list[Prompt] | None:
    """The prompts of a list of them; None for a single one."""
    if isinstance(prompt, list | tuple) and prompt and not isinstance(prompt[0], int | np.integer):
        return cast("list[Prompt]", list(prompt))
    return None


def is_chat(prompt: object) -> bool:
    """Whether a prompt is a message of a chat, or begins with one."""
    first = prompt[0] if isinstance(prompt, list | tuple) and prompt else prompt
    return isinstance(first, Mapping) and "role" in first
