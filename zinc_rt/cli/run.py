"""`zinc run`: one prompt, one text."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.answer import AnswerScreen
from zinc_rt.cli.opening import Generating, opens_model
from zinc_rt.cli.profiling import DEFAULT_TRACE, ProfileFlag, TraceFile, profiled
from zinc_rt.cli.prompts import prompt_text, unescape
from zinc_rt.cli.session import INTERRUPTED, Reply, chat_ids, open_model, prepare_chat, stream_answer
from zinc_rt.cli.terminal import is_terminal, say, write
from zinc_rt.errors import EXIT_INTERRUPTED, UsageError
from zinc_rt.sampling.params import SamplingParams

if TYPE_CHECKING:
    from zinc_rt.model import Model

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PROMPT]", help="The text to continue, in quotes.", show_default=False),
]
PromptOption = Annotated[
    str | None,
    typer.Option(
        "-p",
        "--prompt",
        metavar="TEXT",
        help="The text to continue, as an option.",
        rich_help_panel=o.PROMPT,
        show_default=False,
    ),
]
PromptFile = Annotated[
    str | None,
    typer.Option(
        "-f",
        "--file",
        metavar="FILE",
        help="Read the prompt from FILE; - is standard input, which is also read when no prompt is given.",
        rich_help_panel=o.PROMPT,
        show_default=False,
    ),
]
AsChat = Annotated[
    bool,
    typer.Option(
        "--chat",
        help="Treat the prompt as a message and let the model answer, using its chat template.",
        rich_help_panel=o.PROMPT,
        show_default=False,
    ),
]
Escape = Annotated[
    bool,
    typer.Option(
        "-e",
        "--escape",
        help="Read \\n, \\t, \\r, \\\\ in the texts given as line end, tab, return, backslash.",
        rich_help_panel=o.PROMPT,
        show_default=False,
    ),
]
DisplayPrompt = Annotated[
    bool | None,
    typer.Option(
        "--display-prompt/--no-display-prompt",
        help="Print the prompt before the text. Default: only on a terminal, and not into standard output.",
        rich_help_panel=o.OUTPUT,
        show_default=False,
    ),
]
Logprobs = Annotated[
    int | None,
    typer.Option(
        "--logprobs",
        metavar="N",
        help="With --json: log-probabilities of each token and of the N likeliest ones. Default: none.",
        rich_help_panel=o.OUTPUT,
        show_default=False,
    ),
]
JsonText = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print one JSON object at the end: text, token ids, reason, seed, speeds (tokens per second).",
        rich_help_panel=o.OUTPUT,
        show_default=False,
    ),
]


@opens_model
def run(
    *,
    words: Words = None,
    prompt: PromptOption = None,
    file: PromptFile = None,
    chat: AsChat = False,
    system: o.SystemPrompt = None,
    escape: Escape = False,
    opening: Generating,
    ctx_size: o.CtxSize = None,
    batch_size: o.BatchSize = None,
    max_tokens: o.MaxTokens = SamplingParams.max_tokens or -1,
    stop: o.Stop = None,
    ignore_eos: o.IgnoreEos = False,
    temp: o.Temp = SamplingParams.temperature,
    top_k: o.TopK = SamplingParams.top_k,
    top_p: o.TopP = SamplingParams.top_p,
    min_p: o.MinP = SamplingParams.min_p,
    repeat_penalty: o.RepeatPenalty = SamplingParams.repetition_penalty,
    presence_penalty: o.PresencePenalty = SamplingParams.presence_penalty,
    frequency_penalty: o.FrequencyPenalty = SamplingParams.frequency_penalty,
    repeat_last_n: o.RepeatLastN = SamplingParams.repeat_last_n,
    logit_bias: o.LogitBias = None,
    seed: o.Seed = -1,
    display_prompt: DisplayPrompt = None,
    logprobs: Logprobs = None,
    as_json: JsonText = False,
    profile: ProfileFlag = False,
    trace_file: TraceFile = Path(DEFAULT_TRACE),
    debug: o.Debug = False,
) -> int:
    """Continue a prompt.

    The text goes to standard output as it is made, a line about speed to standard error at the end. Ctrl-C stops;
    the text so far stays. With --chat, where a model marks its reasoning and its tool calls (gpt-oss), the text is
    what is left; a terminal shows the reasoning dimmed, on standard error, and --json has all of them.
    """
    if logprobs is not None and not as_json:
        raise UsageError("--logprobs needs --json, which is where the numbers are printed")
    if system is not None and not chat:
        raise UsageError("--system needs --chat: a plain continuation has no system prompt")
    text = prompt_text(words, prompt, file, escape=escape)
    params = o.sampling_params(
        max_tokens=max_tokens,
        stop=[unescape(s) for s in stop or ()] if escape else stop,
        ignore_eos=ignore_eos,
        temperature=temp,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repeat_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        repeat_last_n=repeat_last_n,
        logit_bias=logit_bias,
        seed=seed,
        logprobs=logprobs,
    )
    if chat:
        prepare_chat()
    with open_model(opening, n_ctx=ctx_size, n_batch=batch_size) as opened:
        messages = [{"role": "system", "content": system}] if system is not None else []
        messages.append({"role": "user", "content": text})
        ids = chat_ids(opened, messages) if chat else opened.tokenize(text)
        if not as_json and not chat:
            _show_prompt(text, display_prompt)
        with profiled(opened.engine, profile, trace_file):
            # What follows a plain prompt is no answer: its marks belong to the text.
            marks = opened.tokenizer if chat else None
            screen = AnswerScreen(marks, reasoning=is_terminal(sys.stderr), quiet=as_json)
            answer = stream_answer(opened, ids, params, screen.put)
            screen.finish()
            if not as_json and not screen.text.endswith("\n"):
                write("\n")
        if as_json:
            write(json.dumps(_as_dict(opened, text, params, answer, screen), ensure_ascii=False) + "\n")
    say(f"{answer.speed_line} | seed {params.seed}", style="dim")
    return EXIT_INTERRUPTED if answer.finish_reason == INTERRUPTED else 0


def _show_prompt(text: str, wanted: bool | None) -> None:
    """On standard output if asked for; by itself only where a person reads it together with the text."""
    if wanted:
        write(text)
    elif wanted is None and is_terminal(sys.stdout) and is_terminal(sys.stderr):
        say(text, style="bold", end="")


def _as_dict(
    model: Model, prompt: str, params: SamplingParams, answer: Reply, screen: AnswerScreen
) -> dict[str, Any]:  # fmt: skip
    stats = answer.stats
    tree: dict[str, Any] = {
        "model": model.name,
        "device": model.device.value,
        "kernels": model.engine.features.kernels,
        "isa": model.engine.features.isa,
        "threads": model.engine.features.threads,
        "prompt": prompt,
        "text": screen.text,
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
    if screen.marked:
        tree["reasoning"] = screen.reasoning
        tree["tool_calls"] = [{"name": tool, "arguments": arguments} for tool, arguments in screen.calls]
    if params.logprobs is not None:
        tree["logprobs"] = [
            {
                "token_id": c.token_id,
                "logprob": _finite(c.logprob),
                "top": [{"token_id": i, "logprob": _finite(v)} for i, v in c.top_logprobs or ()],
            }
            for c in answer.chunks
        ]
    return tree


def _finite(value: float | None) -> float | None:
    """JSON has no infinity: a forced token that the model gives no chance has no log-probability."""
    return value if value is not None and value != float("-inf") else None
