"""`zinc chat`: a conversation, typed line by line or piped in."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from zinc_rt.cli import options as o
from zinc_rt.cli.answer import AnswerScreen
from zinc_rt.cli.conversation import Conversation
from zinc_rt.cli.opening import Generating, opens_model
from zinc_rt.cli.session import INTERRUPTED, Reply, chat_ids, open_model, prepare_chat, stream_answer
from zinc_rt.cli.terminal import is_terminal, one_line, say, write
from zinc_rt.errors import EXIT_INTERRUPTED, UsageError, ZincError
from zinc_rt.sampling.params import SEED_LIMIT, SamplingParams

if TYPE_CHECKING:
    from zinc_rt.model import Model

HELP: Final = """\
/help          this list
/reset         start over; the system prompt stays
/system TEXT   set the system prompt and start over; without TEXT show it
/regen         answer the last message again, with the next seed
/save FILE     write the conversation to FILE (JSON)
/load FILE     continue a saved conversation
/stats         size of the conversation, speed of the last answer
/exit          leave, as Ctrl-D does
A line that ends in \\ goes on in the next one; pasted lines are one message. Ctrl-C stops an answer.
A message that begins with / needs a space in front."""

_COMMAND: Final = re.compile(r"/[a-z]+( |$)")

# Share of the context that stays free for the answer; older turns are dropped for it.
_ANSWER_SHARE: Final = 0.25


@opens_model
def chat(
    *,
    system: o.SystemPrompt = None,
    opening: Generating,
    ctx_size: o.CtxSize = None,
    batch_size: o.BatchSize = None,
    max_tokens: o.MaxTokens = -1,
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
    debug: o.Debug = False,
) -> int:
    """Talk with a model.

    The model's own chat template is used; /help inside lists the commands. With standard input from a pipe each
    line is a message, and standard output gets the answers alone. When the context is full, the oldest turns
    are dropped, with a notice. Where a model marks its reasoning and its tool calls (gpt-oss), the answer is what is
    left; a dialogue shows the reasoning dimmed.
    """
    params = o.sampling_params(
        max_tokens=max_tokens,
        stop=stop,
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
    )
    if sys.stdin is None:
        raise UsageError("standard input is closed; messages are read from there")
    prepare_chat()
    with open_model(opening, n_ctx=ctx_size, n_batch=batch_size) as opened:
        _ = opened.chat_template  # a file without one is refused before the first question
        return Chat(opened, params, Conversation(system), interactive=is_terminal(sys.stdin)).loop()


def _is_command(line: str) -> bool:
    """Whether a message is a command. Several lines are one only by the first word: pasted code may begin with /."""
    return line.startswith("/") and ("\n" not in line or _COMMAND.match(line) is not None)


class Chat:
    """The loop around a `Conversation`."""

    def __init__(self, model: Model, params: SamplingParams, conversation: Conversation, *, interactive: bool) -> None:
        self.model = model
        self.params = params
        self.conversation = conversation
        self.interactive = interactive
        self._last: Reply | None = None

    def loop(self) -> int:
        """Read messages and answer them until the input ends; returns the exit code."""
        if self.interactive:
            n_ctx = self.model.n_ctx
            say(f"{self.model.name}, context {n_ctx} tokens, seed {self.params.seed}. /help lists the commands.")
        for line in self._lines():
            try:
                if _is_command(line):
                    name, _, rest = line.partition(" ")
                    if self._command(name, rest.strip()):
                        break
                elif line.strip():
                    self.conversation.ask((line[1:] if line.startswith(" /") else line).rstrip())
                    if self._answer() == INTERRUPTED and not self.interactive:
                        return EXIT_INTERRUPTED
            except ZincError as error:
                if not self.interactive:
                    raise
                say(f"zinc: {one_line(str(error))}", style="red")
        return 0

    def _lines(self) -> Iterator[str]:
        """Messages and commands; a line that ends in a backslash takes the next one along."""
        if self.interactive:
            with contextlib.suppress(ImportError):
                import readline  # line editing and history for input()

                readline.parse_and_bind("set enable-bracketed-paste on")  # what is pasted comes as one line
        pending: list[str] = []
        while True:
            try:
                line = self._read(". " if pending else "> ")
            except EOFError:
                if self.interactive:
                    say("")
                elif pending:
                    yield "\n".join(pending)
                return
            except KeyboardInterrupt:
                if not self.interactive:
                    raise
                say("\n(Ctrl-D or /exit leaves)", style="dim")
                pending.clear()
                continue
            if line.endswith("\\"):
                pending.append(line[:-1])
                continue
            yield "\n".join([*pending, line])
            pending.clear()

    def _read(self, prompt: str) -> str:
        if not self.interactive:
            line = sys.stdin.readline()
            if not line:
                raise EOFError
            return line.rstrip("\r\n")
        if is_terminal(sys.stdout):
            return input(prompt)
        if sys.stderr is not None:  # answers go to a file: keep the prompt out of it
            print(prompt, end="", file=sys.stderr, flush=True)
        return input()

    def _answer(self) -> str:
        """Answer the last message; returns the finish reason. A message that cannot be answered is taken back."""
        talk, n_ctx = self.conversation, self.model.n_ctx
        reserve = max(1, int(n_ctx * _ANSWER_SHARE))
        if self.params.max_tokens is not None:
            reserve = min(reserve, self.params.max_tokens)
        dropped = talk.dropped
        try:
            ids = talk.fit(lambda messages: chat_ids(self.model, messages), n_ctx - reserve)
        except ZincError:
            talk.undo("user")
            raise
        if talk.dropped > dropped:
            say(
                f"zinc: the context of {n_ctx} tokens is full; the model no longer sees the oldest "
                f"{talk.dropped} of {len(talk.messages)} messages",
                style="yellow",
            )
        screen = AnswerScreen(self.model.tokenizer, reasoning=self.interactive)
        self._last = stream_answer(self.model, ids, self.params, screen.put)
        screen.finish()
        if not screen.text.endswith("\n"):
            write("\n")
        talk.answer(screen.text)
        if self._last.finish_reason == "context":
            say("zinc: the context is full, the answer was cut; /reset, or a larger -c", style="yellow")
        if self.interactive:
            say(self._last.speed_line, style="dim")
        return self._last.finish_reason

    def _command(self, name: str, rest: str) -> bool:
        """Carry out a command; True ends the chat."""
        talk = self.conversation
        if name in ("/exit", "/quit", "/bye"):
            return True
        if name == "/help":
            say(HELP)
        elif name == "/reset":
            talk.reset()
            say("started over")
        elif name == "/system":
            self._system(rest)
        elif name == "/regen":
            self._regenerate()
        elif name in ("/save", "/load"):
            if not rest:
                raise UsageError(f"{name} needs a file name")
            (talk.save if name == "/save" else talk.load)(rest)
            say(f"{'saved' if name == '/save' else 'loaded'} {len(talk.messages)} messages: {rest}")
        elif name == "/stats":
            self._stats()
        else:
            raise UsageError(f"unknown command {name}; /help lists them (a message may begin with a space and /)")
        return False

    def _system(self, text: str) -> None:
        if text:
            self.conversation.system = text
            self.conversation.reset()
        say(f"system prompt: {self.conversation.system or 'none'}")

    def _regenerate(self) -> None:
        self.conversation.undo("assistant")
        if not self.conversation.messages:
            raise UsageError("there is no message to answer again")
        seed = ((self.params.seed or 0) + 1) % SEED_LIMIT
        self.params = dataclasses.replace(self.params, seed=seed)
        self._answer()

    def _stats(self) -> None:
        talk = self.conversation
        tokens = len(chat_ids(self.model, talk.seen())) if talk.messages else 0
        seen = f", {talk.dropped} of them no longer seen by the model" if talk.dropped else ""
        size = f"{tokens} of {self.model.n_ctx} tokens"
        say(f"{len(talk.messages)} messages{seen}; {size}; seed {self.params.seed}")
        if self._last is not None:
            say(self._last.speed_line)
