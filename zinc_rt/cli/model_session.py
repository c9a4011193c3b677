"""Common parts of `run` and `chat`: opening a model, streaming one generation to the screen, its speed line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from zinc_rt.cli.files import model_file
from zinc_rt.cli.terminal import LoadingBar, is_terminal
from zinc_rt.cli.verbosity import Verbosity

if TYPE_CHECKING:
    from pathlib import Path

    from zinc_rt.cli.adapter_options import Given
    from zinc_rt.cli.engine_options import EngineOptions
    from zinc_rt.llm.chat import ChatChunk
    from zinc_rt.llm.model import Model
    from zinc_rt.sampling.generation import Chunk, Stats

INTERRUPTED = "interrupted"
_BASES: Final = ("base", "pt", "pretrained")
"""How `general.finetune` ends for models that nobody tuned to answer; converters take it from a name's end."""
Piece = TypeVar("Piece")
AnyEngine = TypeVar("AnyEngine", bound="EngineOptions")

_ENDINGS = {
    "stop": "the text ended",
    "length": "token limit (-n)",
    "context": "context full (-c)",
    INTERRUPTED: "interrupted",
}


def open_model(
    engine: EngineOptions,
    *,
    n_ctx: int | None = None,
    n_batch: int | None = None,
    embeddings: bool | None = False,
    pooling: str | None = None,
    mmproj: str | None = None,
    lora: Sequence[Given] = (),
    verbosity: Verbosity = Verbosity.VERBOSE,
) -> Model:
    """`zinc_rt.load`, with its notices and, where it takes long, a progress bar on standard error.

    engine: what the command line says; verbosity: which notices to show; the others as for `load`, and the model
    generates unless told otherwise. Raises what `load` raises, and `UsageError`.
    """
    from zinc_rt.llm.load import load

    path = model_file(engine.model, engine.hub, verbosity)
    options = engine.load_options(verbosity) | ({} if mmproj is None else {"mmproj": mmproj})
    options |= {"lora": list(lora)} if lora else {}
    with LoadingBar() as bar:
        return load(
            path,
            **options,
            n_ctx=n_ctx,
            n_batch=n_batch,
            embeddings=embeddings,
            pooling=pooling,
            n_slots=1,
            notify=verbosity.notice,
            progress=bar.show if is_terminal(sys.stderr) and verbosity is not Verbosity.QUIET else None,
        )


def located(engine: AnyEngine, verbosity: Verbosity) -> AnyEngine:
    """The same with the model's file in place of its name, downloaded where needed. Raises what `model_file` raises."""
    return replace(engine, model=model_file(engine.model, engine.hub, verbosity), hub=None)


def converses(file: Path | None) -> bool:
    """Whether a model is made to answer: it has a chat template and is no base model. None is the one in the package.

    Raises `GGUFError`.
    """
    from zinc_rt.gguf import GGUFFile
    from zinc_rt.llm.load import built_in_model

    with GGUFFile.open(built_in_model() if file is None else file) as opened:
        tuned = opened.metadata.get("general.finetune")
        base = isinstance(tuned, str) and tuned.lower().rpartition("-")[2] in _BASES
        return not base and any(key.startswith("tokenizer.chat_template") for key in opened.metadata)


def prepare_chat() -> None:
    """Have the process that renders chat templates start while the model is loaded."""
    from zinc_rt.text import template_process

    template_process.prepare()


def chat_ids(model: Model, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]) -> list[int]:
    """Token ids of a conversation in the model's own format, ready for a new answer.

    variables: of the template. Raises `ChatTemplateMissing`, `ChatTemplateError`.
    """
    from zinc_rt.dialects.messages import Ending

    return list(model.chat_format.prompt(messages, variables=variables, ending=Ending(continued=False)).ids)


@dataclass
class Reply:
    """The result of one generation. After Ctrl-C `finish_reason` is `INTERRUPTED` and `stats` were
    measured here."""

    prompt_tokens: int
    chunks: list[Chunk] = field(default_factory=list)
    finish_reason: str = INTERRUPTED
    stats: Stats | None = None

    @property
    def speed_line(self) -> str:
        """Tokens and tokens per second of prompt and text, and why it ended."""
        ending = _ENDINGS.get(self.finish_reason, self.finish_reason)
        s = self.stats
        if s is None:
            return f"prompt {_tokens(self.prompt_tokens)} | {ending}"
        cached = f" ({s.cached_tokens} from cache)" if s.cached_tokens else ""
        prompt = f"prompt {_tokens(s.prompt_tokens)}{cached}{_speed(s.prefill_tokens_per_second)}"
        return f"{prompt} | text {_tokens(s.completion_tokens)}{_speed(s.decode_tokens_per_second)} | {ending}"


def _tokens(n: int) -> str:
    return f"{n} token" if n == 1 else f"{n} tokens"


def _speed(tokens_per_second: float) -> str:
    """Nothing where nothing was timed, as with a text of one token, which the prompt's step gives."""
    return f", {tokens_per_second:.1f} tokens/s" if tokens_per_second > 0 else ""


def chunk_of(piece: ChatChunk) -> Chunk:
    """The token behind a piece of an answer."""
    return piece.chunk


def stream_answer(
    stream: Generator[Piece],
    chunk: Callable[[Piece], Chunk],
    put: Callable[[Piece], None],
    prompt_tokens: int,
    cached_tokens: int = 0,
) -> Reply:
    """Read a generation to its end, giving each piece to `put`. Ctrl-C ends it early with the text so far.

    chunk: the chunk of a piece. prompt_tokens, cached_tokens: for the speed of one that is interrupted.
    """
    from zinc_rt.lang.building import seconds_compiled

    answer = Reply(prompt_tokens)
    started = first = last = time.perf_counter()
    compiled = seconds_compiled()
    try:
        for piece in stream:
            part = chunk(piece)
            if part.token_id is not None:
                last = time.perf_counter()
                if not answer.chunks:
                    first, started = last, started + seconds_compiled() - compiled
                answer.chunks.append(part)
            put(piece)
            if part.finish_reason is not None:
                answer.finish_reason, answer.stats = part.finish_reason, part.stats
    except KeyboardInterrupt:
        from zinc_rt.sampling.generation import Stats

        answer.finish_reason = INTERRUPTED
        if answer.chunks:
            answer.stats = Stats(prompt_tokens, len(answer.chunks), first - started, last - first, cached_tokens)
    finally:
        stream.close()
    return answer
