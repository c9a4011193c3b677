"""`zinc chat`: a conversation, typed line by line or piped in."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from zinc_rt.cli import options as o
from zinc_rt.cli.banner import banner, show_banner
from zinc_rt.cli.chat_input import ChatInput, history_file, matching_paths
from zinc_rt.cli.chat_options import ConversationOptions, DisplayOptions
from zinc_rt.cli.conversation import ChatHistory, Message
from zinc_rt.cli.engine_options import ContextOptions, EngineOptions, GeneratingOptions
from zinc_rt.cli.files import path_or_built_in
from zinc_rt.cli.model_session import INTERRUPTED, Reply, chat_ids, chunk_of, open_model, prepare_chat, stream_answer
from zinc_rt.cli.option_records import takes_records
from zinc_rt.cli.picture_options import content_of, image_part, leading_pictures, plain_path
from zinc_rt.cli.prompts import read_text
from zinc_rt.cli.sampling_options import SamplingOptions, changed, settable, settings
from zinc_rt.cli.terminal import is_terminal, one_line, say
from zinc_rt.cli.verbosity import Verbosity, VerbosityOptions
from zinc_rt.errors import EXIT_INTERRUPTED, UsageError, ZincError
from zinc_rt.gguf import GGUFFile
from zinc_rt.sampling.params import SEED_LIMIT, SamplingParams

if TYPE_CHECKING:
    from zinc_rt.llm.model import Model

HELP: Final = """\
/help            this list
/reset, /clear   start over; the system prompt stays
/system TEXT     set the system prompt and start over; without TEXT show it
/regenerate      answer the last message again, with the next seed (/regen)
/undo            take the last message and its answer back
/set NAME VALUE  change how tokens are chosen, as /set temp 0.5; without NAME VALUE show it
/read FILE       put the text of FILE before the next message
/image FILE      show the picture with the next message; a message may also begin with the paths of pictures
/model NAME      go on with another model; without NAME show this one
/save FILE       write the conversation to FILE (JSON)
/load FILE       continue a saved conversation
/tokens          how much of the context is taken; with TEXT: the tokens of TEXT
/stats           size of the conversation, speed of the last answer
/exit            leave, as Ctrl-D does (/quit, /bye)
Alt-Enter begins a new line of the message, as a \\ at a line's end does; lines between two \"\"\" are one message, and
so is what is pasted. The tab key completes commands and files. Ctrl-C stops an answer. A message that begins with /
needs a space in front."""

_COMMAND: Final = re.compile(r"/[a-z]+( |$)")
_SAME: Final = {"/clear": "/reset", "/regen": "/regenerate", "/retry": "/regenerate", "/quit": "/exit", "/bye": "/exit"}

_ARGUMENTS: Final = {
    **dict.fromkeys(("/read", "/image", "/save", "/load"), matching_paths),
    "/model": lambda begun: [*o.completes(o.downloaded)(begun), *matching_paths(begun)],
    "/set": o.completes(settable),
}
"""What the tab key completes behind a command."""

# Share of the context that stays free for the answer; older turns are dropped for it.
_ANSWER_SHARE: Final = 0.25


History = Annotated[
    bool,
    o.option(
        o.OUTPUT,
        "--history/--no-history",
        help="Keep what is typed for the next session, in a file that only you can read.",
    ),
]


@takes_records
def chat(
    *,
    conversation: ConversationOptions,
    engine: GeneratingOptions,
    context: ContextOptions,
    sampling: SamplingOptions,
    display: DisplayOptions,
    history: History = True,
    verbosity: VerbosityOptions,
    debug: o.Debug = False,
) -> int:
    """Talk with a model.

    The model's own chat template is used; /help inside lists the commands. With standard input from a pipe each line is
    a message, and standard output gets the answers alone. When the context is full, the oldest turns are dropped, with
    a notice. Reasoning and tool calls that a model marks are not part of the answer; a terminal shows the reasoning
    dimmed.
    """
    level = verbosity.chosen()
    shows = Display(display.shows_reasoning(level), display.shows_markdown)
    return converse(engine, context, sampling.params(), conversation, shows, level, keeps=history)


def converse(
    engine: EngineOptions,
    context: ContextOptions,
    params: SamplingParams,
    options: ConversationOptions,
    display: Display,
    verbosity: Verbosity,
    *,
    first: str = "",
    keeps: bool = True,
) -> int:
    """Hold a conversation until its input ends; returns the exit code.

    first: the first message, "" to wait for it. keeps: what is typed is kept for the next session.
    """
    system = options.system_prompt
    if sys.stdin is None:
        raise UsageError("standard input is closed; messages are read from there")
    prepare_chat()
    interactive = is_terminal(sys.stdin)

    def load(model: str | None) -> Model:
        chosen = engine if model is None else dataclasses.replace(engine, model=Path(model), hub=None)
        opened = open_model(chosen, **context.load_options(), verbosity=verbosity)
        try:
            options.set_template(opened)
            _ = opened.chat_template  # a file without one is refused before the first question
        except BaseException:
            opened.close()
            raise
        show_banner(
            opened, verbosity, engine.threads, "; /help lists the commands" if interactive and model is None else ""
        )
        return opened

    chat = Chat(load, params, ChatHistory(system), interactive, display, verbosity, options.variables)
    messages = ChatInput(interactive, chat.commands, history_file() if keeps else None)
    with contextlib.closing(chat):
        return chat.loop(itertools.chain([first] if first else [], messages))


@dataclasses.dataclass(frozen=True)
class Display:
    """How answers are shown: with their reasoning, with their Markdown rendered."""

    reasoning: bool
    markdown: bool


def _is_command(line: str) -> bool:
    """Whether a message is a command. Several lines are one only by the first word: pasted code may begin with /."""
    return line.startswith("/") and ("\n" not in line or _COMMAND.match(line) is not None)


class Chat:
    """The loop around a `ChatHistory`."""

    def __init__(
        self,
        load: Callable[[str | None], Model],
        params: SamplingParams,
        conversation: ChatHistory,
        interactive: bool,
        display: Display,
        verbosity: Verbosity,
        variables: Mapping[str, Any],
    ) -> None:
        """load: opens the model of a name, None for that of the command line. interactive: a person types.

        variables: of the chat template. Raises what `load` raises.
        """
        self._load = load
        self._name: str | None = None  # of the model
        self.model = load(None)
        self.params = params
        self.conversation = conversation
        self.interactive = interactive
        self._display, self._verbosity, self._variables = display, verbosity, variables
        self._last: Reply | None = None
        self._texts: list[str] = []  # read from files, for the next message
        self._pictures: list[dict[str, Any]] = []  # the same
        self._commands: dict[str, Callable[[str], None]] = {
            "/help": lambda _: say(HELP),
            "/reset": self._reset,
            "/system": self._system,
            "/regenerate": self._regenerate,
            "/undo": self._undo,
            "/set": self._set,
            "/read": self._read,
            "/image": self._image,
            "/model": self._model,
            "/save": self._save,
            "/load": self._load_file,
            "/tokens": self._tokens,
            "/stats": self._stats,
        }

    @property
    def commands(self) -> dict[str, Callable[[str], Sequence[str]] | None]:
        """All that may be typed, each with what completes its argument."""
        return {**dict.fromkeys([*self._commands, *_SAME, "/exit"]), **_ARGUMENTS}

    def close(self) -> None:
        """Close the model."""
        self.model.close()

    def loop(self, messages: Iterable[str]) -> int:
        """Answer messages and obey commands until they end; returns the exit code."""
        for line in messages:
            try:
                paths, rest = leading_pictures(line)
                if paths:
                    self._show(paths)
                    if not rest:
                        continue
                    line = rest
                if _is_command(line):
                    name, _, rest = line.partition(" ")
                    if self._command(_SAME.get(name, name), rest.strip()):
                        break
                elif line.strip():
                    text = (line[1:] if line.startswith(" /") else line).rstrip()
                    with self.conversation.restored():
                        self.conversation.ask(content_of(self._pictures, "\n\n".join([*self._texts, text])))
                        ending = self._answer()
                    self._forget_read()
                    if ending == INTERRUPTED and not self.interactive:
                        return EXIT_INTERRUPTED
            except ZincError as error:
                if not self.interactive:
                    raise
                say(f"zinc: {one_line(str(error))}", style="red")
        return 0

    def _answer(self) -> str:
        """Answer the last message; returns the finish reason."""
        talk, n_ctx = self.conversation, self.model.n_ctx
        reserve = max(1, int(n_ctx * _ANSWER_SHARE))
        if self.params.max_tokens is not None:
            reserve = min(reserve, self.params.max_tokens)
        dropped = talk.dropped
        ids = talk.fit(self._ids, n_ctx - reserve)
        if talk.dropped > dropped:
            self._verbosity.warn(
                f"the context of {n_ctx} tokens is full; the model no longer sees the oldest "
                f"{talk.dropped} of {len(talk.messages)} messages"
            )
        from zinc_rt.cli.answer_view import AnswerScreen

        screen = AnswerScreen(
            self.model.chat_format.dialect,
            reasoning=self._display.reasoning,
            markdown=self._display.markdown,
            stop=self.params.stop,
        )
        cached = self.model.cached_tokens(ids)
        stream = self.model.chat_stream(talk.seen(), variables=self._variables, params=self.params)
        self._last = stream_answer(stream, chunk_of, screen.put, len(ids), cached)
        screen.finish()
        talk.answer(screen.text)
        if self._last.finish_reason == "context":
            self._verbosity.warn("the context is full, the answer was cut; /reset, or a larger -c")
        if self.interactive:
            self._verbosity.tell(self._last.speed_line, style="dim")
        return self._last.finish_reason

    def _ids(self, messages: Sequence[Message]) -> list[int]:
        return chat_ids(self.model, messages, self._variables)

    def _command(self, name: str, rest: str) -> bool:
        """Carry out a command; True ends the chat."""
        if name == "/exit":
            return True
        if name not in self._commands:
            raise UsageError(f"unknown command {name}; /help lists them (a message may begin with a space and /)")
        self._commands[name](rest)
        return False

    def _reset(self, _: str) -> None:
        self.conversation.reset()
        self._forget_read()
        say("started over")

    def _system(self, text: str) -> None:
        if text:
            self.conversation.system = text
            self.conversation.reset()
        say(f"system prompt: {self.conversation.system or 'none'}")

    def _regenerate(self, _: str) -> None:
        params = self.params
        seed = ((params.seed or 0) + 1) % SEED_LIMIT
        try:
            with self.conversation.restored():
                self.conversation.undo("assistant")
                if not self.conversation.messages:
                    raise UsageError("there is no message to answer again")
                self.params = dataclasses.replace(params, seed=seed)
                self._answer()
        except ZincError:
            self.params = params
            raise

    def _undo(self, _: str) -> None:
        self.conversation.undo("assistant")
        if not self.conversation.undo("user"):
            raise UsageError("there is no message to take back")
        say(f"taken back; {_messages(self.conversation)} left")

    def _set(self, text: str) -> None:
        if text:
            name, _, value = text.partition(" ")
            self.params = changed(self.params, name, value.strip())
        say(settings(self.params))

    def _read(self, path: str) -> None:
        text = read_text(os.path.abspath(_path("/read", path)))
        self._texts.append(text)
        say(f"read {len(text)} characters for the next message: {path}")

    def _image(self, path: str) -> None:
        self._show([os.path.abspath(_path("/image", path))])

    def _show(self, paths: Sequence[str]) -> None:
        """Show pictures with the next message. Raises `UsageError` for a model that reads none, `PictureError`."""
        if self.model.picture_reader is None:
            raise UsageError(f"{self.model.name} reads no pictures here; give its projector with --mmproj FILE")
        self._pictures += [image_part(path) for path in paths]
        n = len(self._pictures)
        say(f"the next message has {n} picture{'' if n == 1 else 's'}: {', '.join(map(one_line, paths))}")

    def _forget_read(self) -> None:
        self._texts.clear()
        self._pictures.clear()

    def _model(self, name: str) -> None:
        if not name:
            say(banner(self.model))
            return
        name = os.path.expanduser(name)
        with GGUFFile.open(path_or_built_in(Path(name))):  # what cannot be opened changes nothing
            pass
        self.model.close()  # its memory may be needed
        try:
            self.model = self._load(name)
            self._name = name
        except BaseException:
            self.model = self._load(self._name)
            raise

    def _save(self, path: str) -> None:
        self.conversation.save(_path("/save", path))
        say(f"saved {_messages(self.conversation)}: {path}")

    def _load_file(self, path: str) -> None:
        self.conversation.load(_path("/load", path))
        say(f"loaded {_messages(self.conversation)}: {path}")

    def _tokens(self, text: str) -> None:
        if not text:
            taken, n_ctx = self._taken(), self.model.n_ctx
            say(f"{taken} of {n_ctx} tokens are taken, {max(0, n_ctx - taken)} are left")
            return
        ids = self.model.tokenize(text, add_special=False)
        shown = " ".join(repr(self.model.detokenize([i])) for i in ids)
        say(one_line(f"{len(ids)} token{'' if len(ids) == 1 else 's'}: {shown}"))

    def _stats(self, _: str) -> None:
        talk = self.conversation
        seen = f", {talk.dropped} of them no longer seen by the model" if talk.dropped else ""
        size = f"{self._taken()} of {self.model.n_ctx} tokens"
        say(f"{_messages(talk)}{seen}; {size}; seed {self.params.seed}")
        if self._last is not None:
            say(self._last.speed_line)

    def _taken(self) -> int:
        """Tokens of what the model sees."""
        return len(self._ids(self.conversation.seen())) if self.conversation.messages else 0


def _messages(talk: ChatHistory) -> str:
    n = len(talk.messages)
    return f"{n} message{'' if n == 1 else 's'}"


def _path(command: str, path: str) -> str:
    """A file named behind a command. Raises `UsageError` for none."""
    if not path:
        raise UsageError(f"{command} needs a file name")
    return plain_path(path)
