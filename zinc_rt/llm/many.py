"""Texts for many prompts: as many at once as there are slots; each is handed out when it is complete."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from contextlib import contextmanager

from zinc_rt.errors import UsageError
from zinc_rt.llm.input_processor import PreparedRequest
from zinc_rt.sampling.generation import Chunk, Generation
from zinc_rt.scheduler.in_process import Inbox, InProcessClient
from zinc_rt.utils.checks import show

Progress = bool | Callable[[int, int | None], None]
"""True shows a line on standard error; a function gets the number of texts that are whole, and of all, if known."""


def finished(
    client: InProcessClient, requests: Iterable[PreparedRequest[Chunk]], n_slots: int
) -> Generator[tuple[int, Generation]]:
    """Texts in the order in which they end, each with its number from 0. At most n_slots requests are made ahead.

    Raises what making, submitting and computing a request raise, with a note of its number.
    """
    waiting, made = iter(requests), 0
    running: dict[str, tuple[int, Inbox[Chunk], list[Chunk]]] = {}
    try:
        while True:
            while len(running) < n_slots:
                with noted(made):
                    if (request := next(waiting, None)) is None:
                        break
                    inbox = client.submit(request.output, request.processors)
                    running[request.output.request.id] = made, inbox, []
                made += 1
            if not running:
                return
            client.wait([inbox for _, inbox, _ in running.values()])
            for request_id, (number, inbox, chunks) in list(running.items()):
                over = inbox.over  # before its pieces: more may come from another thread's turn
                with noted(number):
                    chunks += inbox.take()
                if over:
                    del running[request_id]
                    client.leave(request_id)
                    yield number, Generation.collect(chunks)
    finally:
        for request_id in running:
            client.leave(request_id)


@contextmanager
def noted(number: int) -> Iterator[None]:
    """Errors in the block say which prompt they are of."""
    try:
        yield
    except Exception as error:
        error.add_note(f"prompt {number} of those that were given, counted from 0")
        raise


@contextmanager
def counting(progress: Progress, prompts: object) -> Iterator[Callable[[int], None]]:
    """What takes the number of texts that are whole, and tells it. Raises `UsageError`."""
    total = len(prompts) if isinstance(prompts, Sized) else None
    if progress is False:
        yield lambda done: None
    elif progress is True:
        from rich import progress as bars
        from rich.console import Console

        columns = bars.MofNCompleteColumn(), bars.TextColumn("texts"), bars.BarColumn(), bars.TimeRemainingColumn()
        with bars.Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task("", total=total)
            yield lambda done: bar.update(task, completed=done)
    elif callable(progress):
        tell = progress
        yield lambda done: tell(done, total)
    else:
        raise UsageError(f"progress is {show(progress)}, it must be True, False or a function")
