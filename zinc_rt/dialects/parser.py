"""`StreamParser`: divides an answer into reasoning, content and tool calls while it is generated."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from zinc_rt.dialects.cursor import TextCursor
from zinc_rt.dialects.deltas import CallDelta, ContentDelta, Delta, ReasoningDelta
from zinc_rt.dialects.forms.base import CallForm, ParsedCall, clean_json, json_value
from zinc_rt.dialects.forms.telling import JsonText, tell_whole
from zinc_rt.dialects.record import Dialect, ThinkingState
from zinc_rt.dialects.tools import Tool
from zinc_rt.text.harmony import Channel, Harmony, MessageFormat
from zinc_rt.text.harmony import Delta as Part

_FUNCTIONS = "functions."


class StreamParser:
    """Reads one answer. What the joined deltas are does not depend on how the text is cut into pieces.

    Nothing is dropped but marks, and white space beside them: a call that cannot be parsed is content.
    """

    def __init__(
        self,
        dialect: Dialect,
        tools: Sequence[Tool] = (),
        thinking: ThinkingState = ThinkingState.possible,
        salt: str = "",
        bound: bool = False,
    ) -> None:
        """tools: those that the model may call; without any, no call is looked for. thinking: where the prompt leaves
        the model (`Dialect.thinking`). salt: makes ids of calls; another one for each request. bound: calls follow the
        family's grammar, so they are told while they are written; else each when it is complete.
        """
        told = _Told(dialect, salt)
        names = {tool.name: tool for tool in tools}
        self._told = told
        self._run: _Marked | _Channels = (
            _Channels(told, dialect, dialect.messages, names, thinking, bound)
            if dialect.messages is not None
            else _Marked(told, dialect, names, thinking, bound)
        )

    def add(self, text: str) -> list[Delta]:
        """The deltas that the next piece of text completes, maybe none. The text has the dialect's marks in it, as
        `Detokenizer(shown=dialect.mark_ids(tokenizer))` gives it.
        """
        self._run.add(text)
        return self._told.take()

    def finish(self) -> list[Delta]:
        """What was held back, at the end of the answer."""
        self._run.finish()
        return self._told.take()


class _Told:
    """Deltas that wait to be taken."""

    def __init__(self, dialect: Dialect, salt: str) -> None:
        self._dialect, self._salt = dialect, salt
        self._deltas: list[Delta] = []
        self.n_calls = 0

    def take(self) -> list[Delta]:
        deltas, self._deltas = self._deltas, []
        return deltas

    def content(self, text: str) -> None:
        if text:
            self._deltas.append(ContentDelta(text))

    def reasoning(self, text: str) -> None:
        if text:
            self._deltas.append(ReasoningDelta(text))

    def call(self, call: ParsedCall) -> None:
        tell_whole(self, call)

    def begin(self, name: str) -> None:
        index = self.n_calls
        self.n_calls += 1
        self._deltas.append(CallDelta(index, "", self._dialect.call_id(self._salt, index), name))

    def arguments(self, text: str) -> None:
        """A piece for the call that was begun last."""
        index, last = self.n_calls - 1, self._deltas[-1] if self._deltas else None
        if isinstance(last, CallDelta) and last.name is None and last.index == index:
            self._deltas[-1] = CallDelta(index, last.arguments + text)
        elif text:
            self._deltas.append(CallDelta(index, text))


class _Trimmed:
    """Tells text. White space at its end waits: a mark that follows takes it along."""

    def __init__(self, tell: Callable[[str], None], *, skip: bool = False) -> None:
        """skip: leave out white space at the start."""
        self._tell, self._space, self._skip = tell, "", skip

    def add(self, text: str) -> None:
        if self._skip:
            text = text.lstrip()
            self._skip = not text
        body = text.rstrip()
        if body:
            self._tell(self._space + body)
            self._space = ""
        self._space += text[len(body) :]

    def drop_space(self) -> None:
        """A mark comes: the white space around it belongs to it."""
        self._space, self._skip = "", True

    def flush(self) -> None:
        """Nothing follows: the white space is text."""
        self._tell(self._space)
        self._space = ""


class _Marked:
    """Answers where marks begin reasoning and calls."""

    def __init__(
        self, told: _Told, dialect: Dialect, tools: dict[str, Tool], thinking: ThinkingState, bound: bool
    ) -> None:
        self._told, self._tools, self._bound = told, tools, bound
        self._think, self._form = dialect.think, dialect.calls if tools else None
        self._cursor = TextCursor()
        self._content = _Trimmed(told.content)
        self._reading = self._answer(thinking)
        self._over = False

    def add(self, text: str) -> None:
        self._cursor.feed(text)
        self._go()

    def finish(self) -> None:
        self._cursor.ended = True
        self._go()

    def _go(self) -> None:
        if not self._over:
            self._over = next(self._reading, True) is True

    def _answer(self, thinking: ThinkingState) -> Generator[None]:
        cursor, think, form = self._cursor, self._think, self._form
        if think is not None and thinking is ThinkingState.opened:
            yield from self._reason(think[1])
        elif think is not None and thinking is ThinkingState.possible:
            space = yield from cursor.space()
            if (yield from cursor.accept(think[0])):
                yield from self._reason(think[1])
            else:
                self._content.add(space)
        if form is None:
            yield from cursor.rest(self._content.add)
        else:
            yield from self._content_and_calls(form)
        self._content.flush()

    def _content_and_calls(self, form: CallForm) -> Generator[None]:
        cursor = self._cursor
        if form.bare:
            self._content.add((yield from cursor.space()))
            if (yield from cursor.peek(1)) == "{":
                yield from self._call(form, "", self._content)
        mark = form.begin
        while mark:
            _, mark = yield from cursor.until([form.begin], tell=self._content.add)
            if mark:
                yield from self._call(form, mark, self._content)

    def _reason(self, end: str) -> Generator[None]:
        """Behind the mark that begins reasoning. A call in it ends it, too."""
        cursor, form = self._cursor, self._form
        text = _Trimmed(self._told.reasoning, skip=True)
        marks = [end] if form is None else [end, form.begin]
        while True:
            _, mark = yield from cursor.until(marks, tell=text.add)
            if form is None or mark in ("", end):
                break
            if (yield from self._call(form, mark, text)):
                break
        self._content.drop_space()

    def _call(self, form: CallForm, mark: str, around: _Trimmed) -> Generator[None, None, bool]:
        """Behind a mark of calls, or where a bare call may begin. Whether it is one; else it is part of the text."""
        self._cursor.begin_record()
        if self._bound:
            teller = _Around(self._told, around)
            whole = yield from form.tell(self._cursor, self._tools, bool(mark), teller)
            found = teller.some
            if found and not whole and self._cursor.ended:
                self._cursor.take(len(self._cursor.held))  # the beginning of a mark or an argument that did not come
        else:
            calls = yield from form.read(self._cursor, self._tools, bool(mark))
            found = calls is not None
            if found:
                around.drop_space()
            for call in calls or ():
                self._told.call(call)
        text = self._cursor.end_record()
        if not found:
            around.add(mark + text)
        return found


class _Around:
    """Tells of calls inside of a text."""

    def __init__(self, told: _Told, around: _Trimmed) -> None:
        self._told, self._around = told, around
        self.some = False

    def begin(self, name: str) -> None:
        self._around.drop_space()
        self._told.begin(name)
        self.some = True

    def arguments(self, text: str) -> None:
        self._told.arguments(text)


class _Channels:
    """Answers in messages. Each message to a function is read by itself. thinking: whether the answer begins in the
    middle of the message that is the answer proper.
    """

    def __init__(
        self,
        told: _Told,
        dialect: Dialect,
        format: MessageFormat,
        tools: dict[str, Tool],
        thinking: ThinkingState,
        bound: bool,
    ) -> None:
        self._told, self._dialect, self._tools, self._bound = told, dialect, tools, bound
        self._harmony = Harmony(format)
        self._message = -1
        self._call: _Marked | _JsonCall | None = None
        if thinking is ThinkingState.continued:
            self.add("".join(format.head(format.answers)) + "<|message|>")

    def add(self, text: str) -> None:
        self._take(self._harmony.add(text))

    def finish(self) -> None:
        self._take(self._harmony.finish())
        self._end_call()

    def _take(self, parts: list[Part]) -> None:
        for part in parts:
            if part.message != self._message:
                self._end_call()
                self._message = part.message
                if part.channel is Channel.TOOL_CALL:
                    self._call = self._begin_call((part.to or "").removeprefix(_FUNCTIONS))
            match part.channel:
                case Channel.REASONING:
                    self._told.reasoning(part.text)
                case Channel.CONTENT:
                    self._told.content(part.text)
                case Channel.TOOL_CALL if self._call is not None:
                    self._call.add(part.text)

    def _begin_call(self, name: str) -> _Marked | _JsonCall:
        if self._dialect.calls is not None:
            return _Marked(self._told, self._dialect, self._tools, ThinkingState.off, self._bound)
        return _JsonCall(self._told, name if self._tools else "", self._bound)

    def _end_call(self) -> None:
        if self._call is not None:
            self._call.finish()
        self._call = None


class _JsonCall:
    """A message that is the arguments of a call, a JSON text. name: of the function; "" where no call is looked for.
    bound: it is told as it comes, else when it is complete.
    """

    def __init__(self, told: _Told, name: str, bound: bool) -> None:
        self._told, self._name, self._bound = told, name, bound
        self._telling: JsonText | None = None
        self._arguments: list[str] = []  # what was not told

    def add(self, text: str) -> None:
        self._arguments.append(text)
        if not self._bound or not self._name:
            return
        text = "".join(self._arguments)
        if self._telling is None:
            if not text.lstrip().startswith("{"):
                return
            self._telling = JsonText()
            self._told.begin(self._name)
        self._arguments.clear()
        self._told.arguments("".join(map(self._telling.add, text)))

    def finish(self) -> None:
        text = "".join(self._arguments)
        try:
            is_call = bool(self._name) and isinstance(json_value(text), dict)
        except ValueError:
            is_call = False
        if is_call:
            self._told.call(ParsedCall(self._name, clean_json(text)))
        else:
            self._told.content(text)
