"""`zinc run`: one prompt, one text."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.banner import show_banner
from zinc_rt.cli.chat_options import ConversationOptions, DisplayOptions, FormatOptions
from zinc_rt.cli.engine_options import ContextOptions, GeneratingOptions
from zinc_rt.cli.model_session import INTERRUPTED, converses, located, open_model, prepare_chat
from zinc_rt.cli.option_records import OptionOf, OptionRecord, takes_records
from zinc_rt.cli.picture_options import Images, image_part
from zinc_rt.cli.profiling import ProfileOptions, profiled
from zinc_rt.cli.prompts import prompt_text, refuse_model, unescape
from zinc_rt.cli.run_output import Continued, Question, Shown, answer, as_dict, continue_text
from zinc_rt.cli.sampling_options import SamplingOptions, sampling_option
from zinc_rt.cli.state import StateOptions
from zinc_rt.cli.terminal import is_terminal, say, write
from zinc_rt.cli.verbosity import Verbosity, VerbosityOptions
from zinc_rt.cli.wrap import wrapped
from zinc_rt.errors import EXIT_INTERRUPTED, UsageError
from zinc_rt.sampling.params import SamplingParams

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PROMPT]", help="The prompt, in quotes.", show_default=False),
]
PromptOption = Annotated[
    str | None, o.option(o.PROMPT, "-p", "--prompt", metavar="TEXT", help="The prompt as an option.")
]
PromptFile = Annotated[
    str | None,
    o.option(
        o.PROMPT,
        "-f",
        "--file",
        metavar="FILE",
        help="Read the prompt from FILE; - is standard input, which is also read when no prompt is given.",
    ),
]
Answers = Annotated[
    bool | None,
    o.option(
        o.PROMPT,
        "--chat/--raw",
        "-st/-no-cnv",
        "--single-turn/--no-conversation",
        help="Answer the prompt as a message, by the file's chat template, or continue it as it is. Default: answer"
        " where the file has a template and is no base model (general.finetune), as the story model in the package is.",
    ),
]
Talks = Annotated[
    bool,
    o.option(
        o.PROMPT,
        "-cnv",
        "-i",
        "--conversation",
        "--interactive",
        help="Hold a conversation, as `zinc chat` does; the prompt is its first message. A terminal gets one without a"
        " prompt, too.",
    ),
]
Escape = Annotated[
    bool,
    o.option(
        o.PROMPT,
        "-e",
        "--escape",
        help="Read \\n, \\t, \\r, \\\\ in the texts given as line end, tab, return, backslash.",
    ),
]
DisplayPrompt = Annotated[
    bool | None,
    o.option(
        o.OUTPUT,
        "--display-prompt/--no-display-prompt",
        help="Print the prompt before the text. Default: only on a terminal, and not into standard output.",
    ),
]
Logprobs = Annotated[int | None, sampling_option("logprobs", panel=o.OUTPUT)]
JsonText = Annotated[
    bool,
    o.option(
        o.OUTPUT,
        "--json",
        help="Print one JSON object at the end: text, token ids, reason, seed, speeds (tokens per second).",
    ),
]


@dataclass(frozen=True, kw_only=True)
class PromptOptions(OptionRecord):
    """The prompt, and whether it is a message or a text to continue."""

    words: Words = None
    prompt: PromptOption = None
    file: PromptFile = None
    chat: Answers = None
    talks: Talks = False
    image: Images = None

    @property
    def given(self) -> bool:
        """Whether there is a prompt, or standard input is no terminal, so that there may be one."""
        said = bool(self.words) or self.prompt is not None or self.file is not None
        return said or bool(self.image) or sys.stdin is None or not is_terminal(sys.stdin)


class RunSampling(SamplingOptions):
    """The options of sampling; -n has no value of its own, as an answer and a continuation end differently."""

    @classmethod
    def options(cls) -> Iterator[OptionOf]:
        """See `OptionRecord`."""
        more = f" Default: -1 for an answer, {SamplingParams.max_tokens} for a continuation."
        for name, kind, default in super().options():
            if name == "max_tokens":
                yield name, Annotated[int | None, sampling_option(name, more)], None
            else:
                yield name, kind, default


@takes_records
def run(
    *,
    prompt: PromptOptions,
    conversation: ConversationOptions,
    form: FormatOptions,
    escape: Escape = False,
    engine: GeneratingOptions,
    context: ContextOptions,
    state: StateOptions,
    sampling: RunSampling,
    display_prompt: DisplayPrompt = None,
    display: DisplayOptions,
    verbosity: VerbosityOptions,
    logprobs: Logprobs = None,
    as_json: JsonText = False,
    profile: ProfileOptions,
    debug: o.Debug = False,
) -> int:
    """Answer a prompt, or continue it.

    A model that was trained to answer gets the prompt as a message. A base model continues the prompt, as the story
    model in the package does. --chat and --raw choose. The text goes to standard output as it is made, a line about
    speed to standard error at the end. Ctrl-C stops; the text so far stays. Reasoning and tool calls that a model marks
    are not part of the text; --json has them.
    """
    level = verbosity.chosen()
    refuse_model(prompt.words, "run")
    shows_reasoning = display.shows_reasoning(level)
    response_format = form.response_format()
    system = conversation.system_prompt
    for_answers = form.option or conversation.option or ("--image" if prompt.image else "")
    answers = prompt.chat or bool(for_answers)
    _check(prompt.chat, for_answers, logprobs, as_json)
    one_text = _option_for_one_text(prompt, form, state, profile, as_json=as_json)
    talks = prompt.talks
    if talks and one_text:
        raise UsageError(f"{one_text} is for one answer, and --conversation asks for more; give one of them")
    if not prompt.given and not talks:
        engine = located(engine, level)
        talks = not one_text and (answers or converses(engine.model))
    text = ""
    pictures = [image_part(path) for path in prompt.image or ()]
    if prompt.given or not talks:
        text = prompt_text(prompt.words, prompt.prompt, prompt.file, escape=escape, piped=not talks)
    stops = {"stop": tuple(map(unescape, sampling.values["stop"] or ()))} if escape else {}
    params = sampling.params(logprobs=logprobs, **stops)
    ends_itself = sampling.values["max_tokens"] is None  # where it is an answer
    if talks:
        from zinc_rt.cli.chat import Display, converse

        params = replace(params, max_tokens=None) if ends_itself else params
        shows = Display(shows_reasoning, display.shows_markdown)
        return converse(engine, context, params, conversation, shows, level, first=text)
    engine = located(engine, level)
    if pictures:
        _check_pictures(engine)
    elif engine.mmproj is None and not state.from_state:
        engine = replace(engine, no_mmproj=True)
    chat = prompt.chat
    if chat is None:
        chat = answers or converses(engine.model)
    if chat:
        params = replace(params, max_tokens=None) if ends_itself else params
        prepare_chat()
    with open_model(engine, **context.load_options(), verbosity=level) as opened:
        conversation.set_template(opened)
        if chat:
            _ = opened.chat_template  # a file without one is refused before anything is said
        show_banner(opened, level, engine.threads)
        state.load(opened, level)
        with profiled(opened.engine, profile):
            if chat:
                markdown = display.shows_markdown and not form.option
                shown = Shown(shows_reasoning, markdown, not as_json, display_prompt)
                question = Question(text, system, response_format, form.option, conversation.variables, pictures)
                output = answer(opened, question, params, shown)
            else:
                screen = Continued(partial(_show_prompt, text, display_prompt, level), plain=display.plain)
                output = continue_text(opened, text, params, None if as_json else screen)
        state.save(opened, output.ids, level)
        if as_json:
            write(json.dumps(as_dict(opened, text, params, output), ensure_ascii=False) + "\n")
    level.tell(f"{output.reply.speed_line} | seed {params.seed}", style="dim")
    return EXIT_INTERRUPTED if output.reply.finish_reason == INTERRUPTED else 0


def _check_pictures(engine: GeneratingOptions) -> None:
    """Refuse pictures, before the model is loaded, where nothing reads them. Raises `UsageError`."""
    from zinc_rt.hub.resolve import projectors_beside

    if engine.no_mmproj:
        raise UsageError("--image needs the projector that --no-mmproj leaves out; give one of them")
    if engine.mmproj is None and (engine.model is None or not projectors_beside(engine.model)):
        name = "the model in the package" if engine.model is None else str(engine.model)
        raise UsageError(f"no projector (mmproj-*.gguf) lies beside {name}: give it with --mmproj FILE")


def _option_for_one_text(
    prompt: PromptOptions, form: FormatOptions, state: StateOptions, profile: ProfileOptions, *, as_json: bool
) -> str:
    """The first option given that is for one text, not for a conversation; empty for none."""
    alone = {
        form.option: bool(form.option),
        "--json": as_json,
        "--chat": prompt.chat,
        "--raw": prompt.chat is False,
        "--image": prompt.image,
        "--profile": profile.profile,
        "--save-state": state.to_state,
        "--load-state": state.from_state,
    }
    return next((name for name, given in alone.items() if given), "")


def _check(chat: bool | None, for_answers: str, logprobs: int | None, as_json: bool) -> None:
    """Options that do not go together. for_answers: one that answers alone have. Raises `UsageError`."""
    if logprobs is not None and not as_json:
        raise UsageError("--logprobs needs --json, which is where the numbers are printed")
    if chat is False and for_answers:
        raise UsageError(f"{for_answers} is for answers, and --raw asks for a plain continuation; give one of them")


def _show_prompt(text: str, wanted: bool | None, verbosity: Verbosity) -> str:
    """On standard output if asked for; by itself only where a person reads it together with its continuation. Returns
    what was shown.
    """
    if wanted:
        write(text)
    elif wanted is None and verbosity is not Verbosity.QUIET and is_terminal(sys.stdout) and is_terminal(sys.stderr):
        text = wrapped(text)
        say(text, style="bold", end="")
    else:
        return ""
    return text
