"""Conversations: from a request in OpenAI's form to token ids, a grammar and a reader of the answer; and the answer."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from zinc_rt.dialects.deltas import ContentDelta, Delta, ParsedAnswer, ReasoningDelta, ToolCall
from zinc_rt.dialects.families import dialect_of
from zinc_rt.dialects.grammars import build_grammar
from zinc_rt.dialects.messages import ChatRenderer, Ending
from zinc_rt.dialects.parser import StreamParser
from zinc_rt.dialects.record import Dialect, ThinkingState
from zinc_rt.dialects.tools import (
    ChoiceMode,
    FormatKind,
    RequestError,
    Tool,
    parse_response_format,
    parse_tool_choice,
    parse_tools,
)
from zinc_rt.grammar.vocabulary import GrammarVocabulary
from zinc_rt.llm import schemas
from zinc_rt.llm.output_processor import OutputProcessor
from zinc_rt.sampling.generation import Chunk, Generation
from zinc_rt.scheduler.messages import Event, Finished, Grammar, Token
from zinc_rt.utils.checks import show, true_or_false

if TYPE_CHECKING:
    from zinc_rt.llm.pictures import PicturePrompt, ReadPart
    from zinc_rt.text import ChatTemplate, Tokenizer
    from zinc_rt.vision.shown import ShownPicture


@dataclass(frozen=True)
class ChatPrompt:
    """A conversation as a prompt. ids: its tokens. grammar: what the answer must follow, None for nothing.

    tools: those that may be called. thinking: where the prompt leaves the model. text: the prompt's. pictures: whose
    rows it has. prefill: how many tokens at its end are of an answer that the caller began.
    """

    ids: tuple[int, ...]
    grammar: Grammar | None
    tools: tuple[Tool, ...]
    thinking: ThinkingState
    text: str = ""
    pictures: tuple[ShownPicture, ...] = ()
    prefill: int = 0

    @property
    def bound(self) -> bool:
        """Whether calls in the answer follow a grammar."""
        return self.grammar is not None and bool(self.tools)

    def salt(self, seed: int | None) -> str:
        """What the ids of calls are made from: the same prompt and seed give the same ids."""
        text = ",".join(map(str, (seed, *self.ids)))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class ChatFormat:
    """How one model converses: its template, its dialect, its tokens. Not for several threads at once.

    vocabulary: the tokenizer's, where the caller has it already; building one takes time. pictures: gives the picture
    of a content part; None for a model that reads none.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        vocabulary: GrammarVocabulary | None = None,
        pictures: ReadPart | None = None,
    ) -> None:
        sources = "\n".join(template.source(name) for name in template.names)
        self.tokenizer = tokenizer
        self.dialect: Dialect = dialect_of(tokenizer, sources)
        self.vocabulary = vocabulary or GrammarVocabulary(tokenizer)
        self._renderer = ChatRenderer(template, self.dialect)
        self._pictures = pictures

    @cached_property
    def mark_ids(self) -> frozenset[int]:
        """Special tokens that are parts of answers."""
        return self.dialect.mark_ids(self.tokenizer)

    def prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        parallel_tool_calls: bool = True,
        response_format: Mapping[str, Any] | None = None,
        variables: Mapping[str, Any] | None = None,
        ending: Ending | None = None,
        check: Callable[[str], None] | None = None,
    ) -> ChatPrompt:
        """Check, render and tokenize a conversation, and make its grammar.

        Fields are those of OpenAI's chat completions: see `render_messages`, `parse_tools`, `parse_tool_choice` and
        `parse_response_format`. variables: of the template, as `{"enable_thinking": False}`. With tool_choice "none"
        the prompt has no tools. ending: of the prompt; None continues a last message of the assistant. check: gets the
        prompt's text before it is tokenized, and may raise.

        Raises `RequestError` and `GrammarError`, which name the field; `ChatTemplateError`.
        """
        offered, form = parse_tools(tools), parse_response_format(response_format)
        choice = parse_tool_choice(tool_choice, offered)
        true_or_false("parallel_tool_calls", parallel_tool_calls)
        if variables is not None and not (
            isinstance(variables, Mapping) and all(isinstance(k, str) for k in variables)
        ):
            raise RequestError("variables", f"are {show(variables)}; give an object")
        if choice.mode is ChoiceMode.none:
            offered = ()
        shown = self._picture_prompt()
        mark = None if shown is None else shown.mark
        text, thinking = self._renderer.render_messages(messages, offered, ending, mark, **(variables or {}))
        if thinking is ThinkingState.continued and (
            form.kind is not FormatKind.text or (self.dialect.messages is not None and offered)
        ):
            what = "response_format" if form.kind is not FormatKind.text else "tools"
            raise RequestError(
                what,
                "cannot be used while the last message is continued; set continue_final_message to false",
                unsupported=True,
            )
        if check is not None:
            check(text)
        grammar = build_grammar(self.dialect, self.vocabulary, offered, choice, parallel_tool_calls, form, thinking)
        encode = partial(self.tokenizer.encode, add_special=False)
        read = encode if shown is None else partial(shown.encode, encode=encode)
        ids = tuple(read(text))
        prefill = _prefilled(ids, text, messages[-1], read) if thinking is ThinkingState.continued else 0
        if shown is None:
            return ChatPrompt(ids, grammar, offered, thinking, text, prefill=prefill)
        return ChatPrompt(ids, grammar, offered, thinking, shown.plain(text), shown.shown, prefill)

    def _picture_prompt(self) -> PicturePrompt | None:
        """What takes the pictures of a conversation; None where the model reads none."""
        if self._pictures is None:
            return None
        from zinc_rt.llm.pictures import PicturePrompt

        return PicturePrompt(self._pictures)

    def parser(self, prompt: ChatPrompt, seed: int, bound: bool = False) -> StreamParser:
        """What divides the answer to a prompt. seed: of the request; ids of calls depend on it and on the prompt, so
        that a replay has the same. bound: see `StreamParser`.
        """
        return StreamParser(self.dialect, prompt.tools, prompt.thinking, prompt.salt(seed), bound)


def _prefilled(ids: Sequence[int], text: str, last: Mapping[str, Any], encode: Callable[[str], Sequence[int]]) -> int:
    """How many tokens at a prompt's end are of its last message, which is continued. All, where the template has
    changed the message's text.
    """
    content = last.get("content")
    begun = content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())
    head = encode(text.removesuffix(begun)) if begun and text.endswith(begun) else ()
    before = next((i for i, (one, other) in enumerate(zip(ids, head)) if one != other), len(head))
    return len(ids) - before


@dataclass(frozen=True)
class ChatChunk:
    """The chunk of one token. deltas: what it completed, maybe nothing. chunk: the token, and its text with the marks
    of the model's family; the last one has no token.
    """

    deltas: tuple[Delta, ...]
    chunk: Chunk

    @property
    def text(self) -> str:
        """The content that it completed, "" for none. `str` of the chunk is the same."""
        return "".join(delta.text for delta in self.deltas if isinstance(delta, ContentDelta))

    @property
    def reasoning(self) -> str:
        """The reasoning that it completed, "" for none."""
        return "".join(delta.text for delta in self.deltas if isinstance(delta, ReasoningDelta))

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class ChatAnswer:
    """An answer. content: None where there are calls and no text beside them; reasoning: None where there is none.

    finish_reason: "stop", "tool_calls", "length" or "context". generation: the tokens, counts and seed behind it; its
    text has the marks of the model's family in it. form: the `response_format` that was asked for.
    """

    content: str | None
    reasoning: str | None
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str
    generation: Generation = field(repr=False)
    form: object = field(default=None, repr=False)

    @classmethod
    def collect(cls, chunks: Iterable[ChatChunk], form: object = None) -> ChatAnswer:
        """Read a stream to its end. form: see above."""
        all_ = list(chunks)
        answer = ParsedAnswer.join(delta for chunk in all_ for delta in chunk.deltas)
        generation = Generation.collect(chunk.chunk for chunk in all_)
        reason = finish_reason(generation.finish_reason, len(answer.tool_calls))
        return cls(answer.content, answer.reasoning, answer.tool_calls, reason, generation, form)

    @cached_property
    def parsed(self) -> Any:
        """The content as a value of the type that was given as `response_format`; None where there is no type, or where
        the model called tools.

        Raises `AnswerNotParsed` where the text was cut off, or where a check of the type refuses it.
        """
        if self.content is None or not schemas.is_type(self.form):
            return None
        try:
            return schemas.parse(self.form, self.content)
        except schemas.AnswerNotParsed:
            if self.finish_reason == "stop":
                raise
            raise schemas.AnswerNotParsed(
                f"the answer was cut off ({self.finish_reason}) after {len(self.generation.token_ids)} tokens, so there"
                " is no value; give more max_tokens, or a larger n_ctx"
            ) from None

    @property
    def message(self) -> dict[str, Any]:
        """The answer as a message of the conversation, in OpenAI's form: append it before the next turn."""
        answer = ParsedAnswer(self.content, self.reasoning, self.tool_calls)
        return {"role": "assistant", "content": self.content, **answer.marks()}

    @property
    def text(self) -> str:
        """The content, "" for none. `str` of the answer is the same."""
        return self.content or ""

    def _repr_markdown_(self) -> str:
        """The answer for notebooks: reasoning as a quotation, content, calls as code."""
        thought = [f"> {line}" for line in (self.reasoning or "").strip().splitlines()]
        calls = [f"```json\n{call.name} {call.arguments}\n```" for call in self.tool_calls]
        return "\n\n".join(filter(None, ["\n".join(thought), self.text, *calls]))

    def __str__(self) -> str:
        return self.text


def finish_reason(reason: str, n_calls: int) -> str:
    """Why an answer ended, as a chat says it: one that stopped with calls ended for them."""
    return "tool_calls" if n_calls and reason == "stop" else reason


class ChatOutput(OutputProcessor[ChatChunk]):
    """The chunks of the answer to a conversation: one for each token, and one that ends it."""

    def piece(self, event: Event) -> ChatChunk | None:
        """See `RequestOutput`."""
        if type(event) is Token:
            deltas = tuple(self.read(event.token_id))
            return ChatChunk(deltas, self.chunk(event, self.text))
        if isinstance(event, Finished):
            deltas = tuple(self.read_end())
            return ChatChunk(deltas, self.last_chunk(event, self.text))
        return None
