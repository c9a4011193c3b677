"""`zinc run`: one prompt, one text."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from zinc_rt.cli import answering as a
from zinc_rt.cli import options as o
from zinc_rt.cli.choosing import sampling_params
from zinc_rt.cli.generating import Continued, Question, Shown, answer, as_dict, continue_text
from zinc_rt.cli.greeting import greet
from zinc_rt.cli.opening import Generating, opens_model
from zinc_rt.cli.profiling import DEFAULT_TRACE, ProfileFlag, TraceFile, profiled
from zinc_rt.cli.prompts import prompt_text, refuse_model, unescape
from zinc_rt.cli.session import INTERRUPTED, converses, located, open_model, prepare_chat
from zinc_rt.cli.state import LoadState, SaveState, load_state, save_state
from zinc_rt.cli.terminal import is_terminal, say, write
from zinc_rt.cli.voice import Quiet, Verbose, Voice
from zinc_rt.cli.wrap import wrapped
from zinc_rt.errors import EXIT_INTERRUPTED, UsageError
from zinc_rt.sampling.params import SamplingParams

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PROMPT]", help="What to answer or to continue, in quotes.", show_default=False),
]
PromptOption = Annotated[
    str | None,
    typer.Option(
        "-p",
        "--prompt",
        metavar="TEXT",
        help="The prompt as an option.",
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
Answers = Annotated[
    bool | None,
    typer.Option(
        "--chat/--raw",
        "-st/-no-cnv",
        "--single-turn/--no-conversation",
        help="Answer the prompt as a message, by the file's chat template, or continue it as it is. Default: answer"
        " where the file has a template and is no base model (general.finetune), as the story model in the package is.",
        rich_help_panel=o.PROMPT,
        show_default=False,
    ),
]
Talks = Annotated[
    bool,
    typer.Option(
        "-cnv",
        "-i",
        "--conversation",
        "--interactive",
        help="Hold a conversation, as `zinc chat` does; the prompt is its first message. A terminal gets one without a"
        " prompt, too.",
        rich_help_panel=o.PROMPT,
        show_default=False,
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "-n",
        "--predict",
        "--max-tokens",
        metavar="N",
        help="Most tokens to generate; -1: until the model ends the text or the context is full. Default: -1 for an"
        f" answer, {SamplingParams.max_tokens} for a continuation.",
        rich_help_panel=o.LIMITS,
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
    chat: Answers = None,
    talks: Talks = False,
    system: o.SystemPrompt = None,
    system_file: o.SystemFile = None,
    think: a.Think = None,
    template: a.TemplateText = None,
    template_file: a.TemplateFile = None,
    json_schema: a.JsonSchema = None,
    answer_format: a.Format = None,
    grammar: a.GrammarText = None,
    grammar_file: a.GrammarFile = None,
    image: a.Image = None,
    escape: Escape = False,
    opening: Generating,
    ctx_size: o.CtxSize = None,
    batch_size: o.BatchSize = None,
    from_state: LoadState = None,
    to_state: SaveState = None,
    max_tokens: Limit = None,
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
    reasoning: a.Reasoning = None,
    plain: a.Plain = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    logprobs: Logprobs = None,
    as_json: JsonText = False,
    profile: ProfileFlag = False,
    trace_file: TraceFile = Path(DEFAULT_TRACE),
    debug: o.Debug = False,
) -> int:
    """Answer a prompt, or continue it.

    A model that was trained to answer gets the prompt as a message. A base model continues the prompt, as the story
    model in the package does. --chat and --raw choose. The text goes to standard output as it is made, a line about
    speed to standard error at the end. Ctrl-C stops; the text so far stays. Reasoning and tool calls that a model marks
    are not part of the text; --json has them.
    """
    voice = Voice.chosen(quiet, verbose)
    a.refuse_images(image)
    refuse_model(words, "run")
    shows_reasoning = a.shows_reasoning(reasoning, voice)
    form = a.Form(json_schema, answer_format, grammar, grammar_file)
    response_format = form.response_format()
    system = o.system_prompt(system, system_file)
    told = {"--system": system, "--chat-template": template, "--chat-template-file": template_file}
    for_answers = form.option or next((name for name, value in told.items() if value is not None), "")
    answers = chat or bool(for_answers)
    _check(chat, for_answers, logprobs, as_json)
    alone = {
        form.option: bool(form.option), "--json": as_json, "--chat": chat, "--raw": chat is False,
        "--profile": profile, "--save-state": to_state, "--load-state": from_state,
    }  # fmt: skip
    one_text = next((name for name, given in alone.items() if given), "")
    if talks and one_text:
        raise UsageError(f"{one_text} is for one answer, and --conversation asks for more; give one of them")
    nothing = not words and prompt is None and file is None and sys.stdin is not None and is_terminal(sys.stdin)
    if nothing and not talks:
        opening = located(opening, voice)
        talks = not one_text and (answers or converses(opening.model))
    text = "" if talks and nothing else prompt_text(words, prompt, file, escape=escape, piped=not talks)
    params = sampling_params(
        max_tokens=SamplingParams.max_tokens or -1 if max_tokens is None else max_tokens,
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
    if talks:
        from zinc_rt.cli.chat import Display, Setup, converse

        params = replace(params, max_tokens=max_tokens if max_tokens != -1 else None)
        shows = Display(shows_reasoning, a.shows_markdown(plain))
        setup = Setup(system, a.template_variables(think), template, template_file)
        return converse(opening, params, setup, shows, voice, n_ctx=ctx_size, n_batch=batch_size, first=text)
    opening = located(opening, voice)
    if chat is None:
        chat = answers or converses(opening.model)
    if chat:
        params = replace(params, max_tokens=None) if max_tokens is None else params
        prepare_chat()
    with open_model(opening, n_ctx=ctx_size, n_batch=batch_size, voice=voice) as opened:
        a.set_template(opened, template, template_file)
        if chat:
            _ = opened.chat_template  # a file without one is refused before anything is said
        greet(opened, voice, opening.threads)
        load_state(opened, from_state, voice)
        with profiled(opened.engine, profile, trace_file):
            if chat:
                shown = Shown(
                    shows_reasoning, a.shows_markdown(plain or bool(form.option)), not as_json, display_prompt
                )
                question = Question(text, system, response_format, form.option, a.template_variables(think))
                output = answer(opened, question, params, shown)
            else:
                screen = Continued(partial(_show_prompt, text, display_prompt, voice), plain=plain)
                output = continue_text(opened, text, params, None if as_json else screen)
        save_state(opened, to_state, output.ids, voice)
        if as_json:
            write(json.dumps(as_dict(opened, text, params, output), ensure_ascii=False) + "\n")
    voice.tell(f"{output.reply.speed_line} | seed {params.seed}", style="dim")
    return EXIT_INTERRUPTED if output.reply.finish_reason == INTERRUPTED else 0


def _check(chat: bool | None, for_answers: str, logprobs: int | None, as_json: bool) -> None:
    """Options that do not go together. for_answers: one that answers alone have. Raises `UsageError`."""
    if logprobs is not None and not as_json:
        raise UsageError("--logprobs needs --json, which is where the numbers are printed")
    if chat is False and for_answers:
        raise UsageError(f"{for_answers} is for answers, and --raw asks for a plain continuation; give one of them")


def _show_prompt(text: str, wanted: bool | None, voice: Voice) -> str:
    """On standard output if asked for; by itself only where a person reads it together with its continuation. Returns
    what was shown.
    """
    if wanted:
        write(text)
    elif wanted is None and voice is not Voice.QUIET and is_terminal(sys.stdout) and is_terminal(sys.stderr):
        text = wrapped(text)
        say(text, style="bold", end="")
    else:
        return ""
    return text
