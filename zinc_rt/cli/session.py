"""Common parts of `run` and `chat`: opening a model, streaming one generation to the screen, its speed line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zinc_rt.checks import show
from zinc_rt.cli.files import model_file
from zinc_rt.cli.terminal import LoadingBar, is_terminal, one_line, say
from zinc_rt.errors import UsageError

if TYPE_CHECKING:
    from zinc_rt.cli.opening import Opening
    from zinc_rt.model import Model
    from zinc_rt.sampling.generation import Chunk, Stats
    from zinc_rt.sampling.params import SamplingParams

INTERRUPTED = "interrupted"

_ENDINGS = {
    "stop": "the text ended",
    "length": "token limit (-n)",
    "context": "context full (-c)",
    INTERRUPTED: "interrupted",
}


def open_model(
    opening: Opening,
    *,
    n_ctx: int | None = None,
    n_batch: int | None = None,
    embeddings: bool | None = False,
    pooling: str | None = None,
) -> Model:
    """`zinc_rt.load`, with its notices and, where it takes long, a progress bar on standard error.

    opening: what the command line says; the others as for `load`, and the model generates unless told otherwise.
    Raises what `load` raises, and `UsageError`.
    """
    from zinc_rt.loading import load

    path = model_file(opening.model, opening.hub)
    device, layers = opening.device, opening.gpu_layers
    with LoadingBar() as bar:
        return load(
            path,
            device=device if layers is None else device_for_layers(layers, device),
            n_ctx=n_ctx,
            threads=opening.threads,
            n_batch=n_batch,
            gpu=opening.gpu,
            kernels=opening.kernels,
            isa=opening.isa,
            cache_dir=opening.cache_dir,
            embeddings=embeddings,
            pooling=pooling,
            kv=opening.kv,
            n_slots=1,
            **opening.guesses,
            notify=lambda line: say(f"zinc: {one_line(line)}", style="dim"),
            progress=bar.show if is_terminal(sys.stderr) else None,
        )


def check_emulated(opening: Opening, flag: str) -> None:
    """Refuse options that say what runs the model, where nothing runs it. Raises `UsageError`."""
    given = {
        "--device": opening.device, "--gpu": opening.gpu, "-ngl": opening.gpu_layers, "--threads": opening.threads,
        "--kernels": opening.kernels, "--isa": opening.isa,
    }  # fmt: skip
    for name, value in given.items():
        if value is not None and (name, value) != ("--device", "emu"):
            raise UsageError(f"{name} is {value}, but {flag} runs nothing; leave it out")


def prepare_chat() -> None:
    """Have the process that renders chat templates start while the model is loaded."""
    from zinc_rt.text import template_process

    template_process.prepare()


def device_for_layers(layers: str, device: str | None) -> str | None:
    """The device that llama.cpp's -ngl asks for: 0 is the CPU, anything else leaves the choice. Says so in one line.

    Raises `UsageError` when it is no number, or 0 together with a GPU.
    """
    from zinc_rt.backends.devices import ON_GPU, Device, parse_device

    if not (layers in ("all", "auto", "-1") or (layers.isascii() and layers.isdigit())):
        raise UsageError(f"-ngl is {show(layers)}; it must be a whole number, all or auto")
    if layers.strip("0"):
        say(f"zinc: -ngl {layers}: layers are not divided, --device runs all of them", style="dim")
        return device
    if device is not None and parse_device(device).device in ON_GPU:
        raise UsageError(f"-ngl 0 means the CPU, but --device is {device}; give one of them")
    say("zinc: -ngl 0: the CPU runs all layers, as with --device cpu", style="dim")
    return Device.cpu.value


def chat_ids(model: Model, messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """Token ids of a conversation in the model's own format, ready for its answer.

    The template writes the special tokens itself, BOS too. Raises `ChatTemplateMissing`, `ChatTemplateError`.
    """
    return model.tokenize(model.chat_template.render(messages), add_special=False)


@dataclass
class Reply:
    """The result of one generation. After Ctrl-C `finish_reason` is `INTERRUPTED` and `stats` were
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


def stream_answer(model: Model, prompt: Sequence[int], params: SamplingParams, put: Callable[[str], None]) -> Reply:
    """Generate, giving each piece of text to `put`. Ctrl-C ends it early with the text so far."""
    answer = Reply(len(prompt))
    cached = model.cached_tokens(prompt)
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
                put(chunk.text)
            if chunk.finish_reason is not None:
                answer.finish_reason, answer.stats = chunk.finish_reason, chunk.stats
    except KeyboardInterrupt:
        from zinc_rt.sampling.generation import Stats

        answer.finish_reason = INTERRUPTED
        if answer.chunks:
            answer.stats = Stats(len(prompt), len(answer.chunks), first - started, last - first, cached)
    finally:
        stream.close()
    return answer
