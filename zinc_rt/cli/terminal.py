"""Output: results go to standard output, all else to standard error, colour to terminals only."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, Self, TextIO

from zinc_rt.cli.wrap import columns, wrapped
from zinc_rt.errors import ZincError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

# Control characters that a terminal would obey; tabs and line ends stay.
_CONTROLS = dict.fromkeys((*range(9), 11, 12, *range(14, 32), *range(127, 160)), "�")

# Select Graphic Rendition, ECMA-48 8.3.117.
_STYLES = {"bold": 1, "dim": 2, "red": 31, "yellow": 33}
_COLOURS = ("red", "yellow")
_PLAIN = ("dumb", "unknown")  # terminals without styles

_TWO_COLUMNS = re.compile(r"\S.{0,20}? {2,}(?=\S)")
_LONGEST = 1000  # characters of a line about an error
_LONG_LOAD = 0.3  # seconds of loading after which a bar appears


class OutputError(ZincError):
    """A result cannot be written to standard output: its disk is full, or it is closed."""


def prepare() -> None:
    """Make standard output and error accept any text: characters that their encoding lacks are replaced."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def is_terminal(stream: TextIO | None) -> bool:
    """Whether the stream is a terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def write(text: str) -> None:
    """Write text to standard output and flush it. On a terminal, control characters are removed.

    Raises BrokenPipeError when the reader has gone, `OutputError` for anything else.
    """
    _put(harmless(text) if is_terminal(sys.stdout) else text)


def write_styled(text: str) -> None:
    """Write text with escape sequences of this program to standard output, a terminal. Raises what `write` raises."""
    _put(text)


def harmless(text: str) -> str:
    """The text without control characters that a terminal would obey."""
    return text.translate(_CONTROLS)


def _put(text: str) -> None:
    if sys.stdout is None:
        raise OutputError("standard output is closed; redirect it to a file or a terminal")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write to standard output: {error.strerror}") from None


def abandon_stdout() -> None:
    """Discard buffered output silently, since nothing reads standard output any more."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        try:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        except (AttributeError, OSError, ValueError):  # there is none, or it has no file behind it
            return


def one_line(text: str) -> str:
    """Any text as one line that is fit for a terminal: no control characters, at most 1000 characters."""
    return printable_line(" ".join(text[: 4 * _LONGEST].split()), len(text) > 4 * _LONGEST)


def printable_line(line: str, more: bool = False) -> str:
    """A line with what is not printable escaped, cut after 1000 characters. more: it is the start of a longer one."""
    shown = line[: _LONGEST + 1]
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else _escaped(c) for c in shown)
    return shown[:_LONGEST] + " ..." if more or len(shown) > _LONGEST else shown


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


def say(message: str, style: str = "", end: str = "\n") -> None:
    """One line for the user on standard error; `style` is one of `_STYLES` and shows on a terminal only."""
    if sys.stderr is None:
        return
    text = message
    if is_terminal(sys.stderr):
        text = _styled(_fitted(message) if end else message, style)
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except OSError:  # standard error is closed
        return


def _fitted(message: str) -> str:
    """Lines that are too long for the terminal broken at words; those of two columns keep the second one's place."""
    width, lines = columns(), message.split("\n")
    for number, line in enumerate(lines):
        if len(line) > width:
            first = _TWO_COLUMNS.match(line)
            lines[number] = wrapped(line, 0 if first is None else first.end())
    return "\n".join(lines)


def shows_styles(stream: TextIO | None) -> bool:
    """Whether text with bold and coloured parts is welcome there: a terminal that knows them, without NO_COLOR."""
    return is_terminal(stream) and "NO_COLOR" not in os.environ and os.environ.get("TERM", "dumb") not in _PLAIN


def _styled(text: str, style: str) -> str:
    """The text as a terminal is to show it. By hand: rich takes as long to import as a small model to load."""
    text = harmless(text)
    plain = os.environ.get("TERM", "dumb") in _PLAIN or (style in _COLOURS and "NO_COLOR" in os.environ)
    return text if plain or not style else f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def stderr_console() -> Console:
    """A rich console on standard error."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


@contextmanager
def progress(description: str, total: int) -> Iterator[Progress | None]:
    """A progress bar on standard error with one task of `total` steps; None where no terminal shows it."""
    if not is_terminal(sys.stderr):
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr_console(), transient=True) as bar:
        bar.add_task(description, total=total)
        yield bar


def advance(bar: Progress | None) -> None:
    """One step of the bar that `progress` gave."""
    if bar is not None:
        bar.advance(bar.task_ids[0])


class LoadingBar:
    """Bytes of a model loaded so far, on a terminal's standard error; it appears when loading takes long.

    doing: the word before the bar. download: whether the bytes come from afar, so that the time left is worth knowing.
    done, total: the bytes that were told last.
    """

    def __init__(self, doing: str = "loading", download: bool = False) -> None:
        self.done = self.total = 0
        self._doing, self._download = doing, download
        self._started: float | None = None
        self._bar: Progress | None = None
        self._lock = threading.Lock()

    def count(self, done: int, total: int) -> None:
        """`done` of `total` bytes are loaded; nothing is shown."""
        self.done, self.total = done, total

    def show(self, done: int, total: int) -> None:
        """`done` of `total` bytes are loaded."""
        self.count(done, total)
        now = time.perf_counter()
        with self._lock:
            if self._started is None:
                self._started = now
            if self._bar is None and now - self._started > _LONG_LOAD and done < total:
                self._bar = _loading_bar(self._doing, total, done, self._download)
                self._bar.start()
            if self._bar is not None:
                self._bar.update(self._bar.task_ids[0], completed=done, total=total, description=self._doing)

    def wait(self, host: str) -> None:
        """Nothing comes from this host. May be called on any thread."""
        with self._lock:
            if self._bar is None:
                self._bar = _loading_bar(self._doing, self.total, self.done, self._download)
                self._bar.start()
            self._bar.update(self._bar.task_ids[0], description=f"waiting for {printable_line(host)}")

    def pause(self) -> None:
        """Take the bar away until the next bytes come."""
        with self._lock:
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pause()


def _loading_bar(doing: str, total: int, done: int, download: bool) -> Progress:
    from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    from zinc_rt.mem.plan import format_bytes

    class Speed(ProgressColumn):  # rich's own has powers of 1,000 alone
        def render(self, task: Task) -> Text:
            return Text(f"{format_bytes(int(task.speed))}/s" if task.speed else "")

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), Speed())
    bar = Progress(*columns, *([TimeRemainingColumn()] if download else []), console=stderr_console(), transient=True)
    bar.add_task(doing, total=total or None, completed=done)
    return bar


def write_table(
    rows: Sequence[Sequence[str]],
    header: Sequence[str] = (),
    right: Sequence[int] = (),
    spare: Sequence[int] = (),
) -> None:
    """Aligned columns to standard output, those in `right` flush right.

    On a terminal that is too narrow those in `spare` are left out, the first one first, and then the last one wraps.
    """
    if not rows:
        return
    lines = [*([header] if header else []), *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if is_terminal(sys.stdout):
        _write_rich_table(rows, header, right, spare, widths)
        return
    for row in lines:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        write("  ".join(cells).rstrip() + "\n")


def _write_rich_table(
    rows: Sequence[Sequence[str]],
    header: Sequence[str],
    right: Sequence[int],
    spare: Sequence[int],
    widths: Sequence[int],
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    shown = [*range(len(widths))]
    for column in spare:
        if sum(widths[i] + 2 for i in shown) - 2 > console.width:
            shown.remove(column)
    table = Table(box=None, show_header=bool(header), pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for i in shown:
        justify: Literal["left", "right"] = "right" if i in right else "left"
        table.add_column(header[i] if header else "", justify=justify, no_wrap=i != shown[-1], overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[i], style="" if i or header else "cyan") for i in shown))
    console.print(table)
    if len(shown) < len(widths):
        left_out = ", ".join(header[i] for i in range(len(widths)) if i not in shown)
        say(f"zinc: a wider terminal shows also: {left_out}", style="dim")


def write_heading(text: str) -> None:
    """A section title on standard output, bold on a terminal."""
    if is_terminal(sys.stdout):
        from rich.console import Console

        Console(highlight=False).print(text, style="bold", markup=False)
    else:
        write(text + "\n")
