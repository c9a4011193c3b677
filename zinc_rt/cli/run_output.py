"""One prompt, one text: `zinc run`'s answers and continuations, and what --json says of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zinc_rt.cli.chat_options import schema_named
from zinc_rt.cli.model_session import Reply, chat_ids, chunk_of, stream_answer
from zinc_rt.cli.picture_options import content_of
from zinc_rt.cli.terminal import is_terminal, write
from zinc_rt.cli.wrap import Wrapper

if TYPE_CHECKING:
    from zinc_rt.llm.model import Model
    from zinc_rt.sampling.generation import Chunk
    from zinc_rt.sampling.params import SamplingParams


@dataclass(frozen=True)
class Shown:
    """How an answer is shown: with its reasoning, with its Markdown rendered, at all, below the prompt."""

    reasoning: bool
    markdown: bool
    shows: bool
    prompt: bool | None


@dataclass(frozen=True)
class Question:
    """A message to answer.

    system: the system prompt. form: of the answer, see `chat_options.FormatOptions`, and the option that says it.
    variables: of the chat template. pictures: parts of the message, before its text.
    """

    text: str
    system: str | None
    form: Mapping[str, Any] | None
    form_option: str
    variables: Mapping[str, Any]
    pictures: Sequence[Mapping[str, Any]] = ()

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation."""
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*system, {"role": "user", "content": content_of(self.pictures, self.text)}]


@dataclass(frozen=True)
class RunOutput:
    """The result of a prompt. prompt: its token ids; marks: reasoning and calls, if the model marks them."""

    prompt: list[int]
    reply: Reply
    text: str
    marks: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ids(self) -> list[int]:
        """Prompt and text."""
        return self.prompt + [c.token_id for c in self.reply.chunks if c.token_id is not None]


class Continued:
    """A continuation on the screen; a terminal breaks its lines at words, unless `plain`.

    begin: called before the first piece, when there is nothing more to be said of how the model is run; what it returns
    stands on the screen before the text.
    """

    def __init__(self, begin: Callable[[], str], *, plain: bool) -> None:
        self._begin: Callable[[], str] | None = begin
        self._lines = None if plain or not is_terminal(sys.stdout) else Wrapper(None)
        self._ended = False  # whether a line has just ended

    def put(self, text: str) -> None:
        """The next piece."""
        if self._begin is not None:
            before, self._begin = self._begin(), None
            if self._lines is not None:
                self._lines.stand_behind(before)
        self._ended = text.endswith("\n") if text else self._ended
        if self._lines is not None:
            self._lines.add_lines(text)
            text = self._lines.take()
        write(text)

    def end(self) -> None:
        """The text is over; its last line ends where it has not."""
        if self._lines is not None:
            self._lines.finish()
            write(self._lines.take())
        if not self._ended:
            write("\n")


def continue_text(model: Model, text: str, params: SamplingParams, shown: Continued | None) -> RunOutput:
    """What follows a text. It is no answer: a model's marks belong to it.

    shown: gets it as it comes. Raises what `Model.stream` raises.
    """
    pieces: list[str] = []

    def put(chunk: Chunk) -> None:
        if shown is not None:
            shown.put(chunk.text)
        pieces.append(chunk.text)

    ids = model.tokenize(text)
    reply = stream_answer(model.stream(ids, params), lambda chunk: chunk, put, len(ids))
    whole = "".join(pieces)
    if shown is not None:
        shown.end()
    return RunOutput(ids, reply, whole)


def answer(model: Model, question: Question, params: SamplingParams, shown: Shown) -> RunOutput:
    """The answer to a message, on the screen as it comes.

    Raises `UsageError` for a schema that cannot be followed, `ChatTemplateError` and what `Model.stream` raises.
    """
    from zinc_rt.cli.answer_view import AnswerScreen

    messages, variables = question.messages, question.variables
    ids = chat_ids(model, messages, variables)
    with schema_named(question.form_option):
        stream = model.chat_stream(messages, response_format=question.form, variables=variables, params=params)
    if shown.prompt and shown.shows:
        write(f"{question.text}\n\n")
    dialect = model.chat_format.dialect
    screen = AnswerScreen(
        dialect, reasoning=shown.reasoning, markdown=shown.markdown, shows=shown.shows, stop=params.stop
    )
    reply = stream_answer(stream, chunk_of, screen.put, len(ids))
    screen.finish()
    marks: dict[str, Any] = {}
    if screen.marked:
        marks["reasoning"] = screen.reasoning
        marks["tool_calls"] = [{"name": tool, "arguments": arguments} for tool, arguments in screen.calls]
    return RunOutput(ids, reply, screen.text, marks)


def as_dict(model: Model, prompt: str, params: SamplingParams, output: RunOutput) -> dict[str, Any]:
    """A generation for --json: text, tokens, why it ended, speeds."""
    answer = output.reply
    stats = answer.stats
    tree: dict[str, Any] = {
        "model": model.name,
        "device": model.device.value,
        "kernels": model.engine.features.kernels,
        "isa": model.engine.features.isa,
        "threads": model.engine.features.threads,
        "prompt": prompt,
        "text": output.text,
        "token_ids": [c.token_id for c in answer.chunks],
        "finish_reason": answer.finish_reason,
        "seed": params.seed,
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": len(answer.chunks),
        "prefill_seconds": stats and stats.prefill_seconds,
        "decode_seconds": stats and stats.decode_seconds,
        "prefill_tokens_per_second": stats and stats.prefill_tokens_per_second,
        "decode_tokens_per_second": stats and stats.decode_tokens_per_second,
    }
    tree |= output.marks
    if params.logprobs is not None:
        tree["logprobs"] = [
            {
                "token_id": c.token_id,
                "token": c.token_text,
                "logprob": _finite(c.logprob),
                "top": [
                    {"token_id": t.id, "token": t.text, "logprob": _finite(t.logprob)} for t in c.top_logprobs or ()
                ],
            }
            for c in answer.chunks
        ]
    return tree


def _finite(value: float | None) -> float | None:
    """JSON has no infinity: a forced token that the model gives no chance has no log-probability."""
    return value if value is not None and value != float("-inf") else None
