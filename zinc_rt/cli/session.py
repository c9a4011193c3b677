"""What `run` and `chat` share: opening a model, streaming one generation to the screen, its speed line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zinc_rt.cli.terminal import LoadingBar, is_terminal, say

if TYPE_CHECKING:
    from zinc_rt.model import Model
    from zinc_rt.sampling.generation import Chunk, Stats
    from zinc_rt.sampling.params import SamplingParams

INTERRUPTED = "interrupted"
EXIT_INTERRUPTED = 130
"""What shells report for a process that Ctrl-C ended (128 + SIGINT)."""

_ENDINGS = {
    "stop": "the text ended",
    "length": "token limit (-n)",
    "context": "context full (-c)",
    INTERRUPTED: "interrupted",
}


def open_model(
    path: Path | None,
    *,
    device: str | None = None,
    n_ctx: int | None = None,
    threads: int | None = None,
    n_batch: int | None = None,
    kernels: str | None = None,
    isa: str | None = None,
    cache_dir: Path | None = None,
) -> Model:
    """`zinc_rt.load`, with its notices and, where it takes long, a progress bar on standard error."""
    from zinc_rt.model import load

    with LoadingBar() as bar:
        return load(
            path,
            device=device,
            n_ctx=n_ctx,
            threads=threads,
            n_batch=n_batch,
            kernels=kernels,
            isa=isa,
            cache_dir=cache_dir,
            notify=lambda line: say(f"zinc: {line}", style="dim"),
            progress=bar.show if is_terminal(sys.stderr) else None,
        )


def chat_ids(model: Model, messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """Token ids of a conversation in the model's own format, ready for its answer.

    The template writes the special tokens itself, BOS too. Raises `ChatTemplateMissing`, `ChatTemplateError`.
    """
    return model.tokenize(model.chat_template.render(messages), add_special=False)


@dataclass
class Reply:
    """One generation as far as it got. After Ctrl-C `finish_reason` is `INTERRUPTED` and `stats` were
    measured here."""

    prompt_tokens: int
    text: str = ""
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


def stream_answer(model: Model, prompt: Sequence[int], params: SamplingParams, show: Callable[[str], None]) -> Reply:
    """Generate, giving each piece of text to `show`. Ctrl-C ends it early with the text so far."""
    answer = Reply(len(prompt))
    stream = model.stream(prompt, params)
    started = first = last = time.perf_counter()
    try:
        for chunk in stream:
            if chunk.token_id is not None:
                last = time.perf_counter()
                first = last if not answer.chunks else first
                answer.chunks.append(chunk)
            answer.text += chunk.text
            if chunk.text:
                show(chunk.text)
            if chunk.finish_reason is not None:
                answer.finish_reason, answer.stats = chunk.finish_reason, chunk.stats
    except KeyboardInterrupt:
        from zinc_rt.sampling.generation import Stats

        answer.finish_reason = INTERRUPTED
        if answer.chunks:
            answer.stats = Stats(len(prompt), len(answer.chunks), first - started, last - first)
    finally:
        stream.close()
    return answer
