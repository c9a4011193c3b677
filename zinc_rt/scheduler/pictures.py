"""`PictureEncoding`: the pictures of requests that run become rows, a slice at a time between the steps of all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from zinc_rt.engine.pictures import Pictures, PlacedPicture
from zinc_rt.errors import ZincError
from zinc_rt.mem.errors import MemoryPlanError

if TYPE_CHECKING:
    from zinc_rt.scheduler.request import Request
    from zinc_rt.vision.projector import PictureWork, Projector
    from zinc_rt.vision.shown import ShownPicture


class PictureEncoding:
    """Turns the pictures of prompts into rows before the prompts' steps need them.

    Args:
        projector: the tower on the engine's device.
        store: the engine's pictures.
    """

    def __init__(self, projector: Projector, store: Pictures) -> None:
        self._projector, self._store = projector, store
        self._at_work: tuple[PlacedPicture, PictureWork] | None = None

    def register(self, pictures: Iterable[ShownPicture]) -> None:
        """Make a request's pictures known. Raises what `Pictures.register` raises."""
        for shown in pictures:
            self._store.register(shown.placed)

    def limit(self, request: Request) -> int:
        """How many of a request's tokens can be computed: those before the first picture whose rows are not there."""
        missing = self._missing(request)
        return len(request.tokens) if missing is None else missing[1].start

    def _missing(self, request: Request) -> tuple[ShownPicture, range] | None:
        for shown, span in request.pictures:
            if span.stop > request.computed and not self._store.has_rows(shown.placed):
                return shown, span
        return None

    def cut(self, request: Request, start: int, end: int, room: int) -> int:
        """Where a chunk ends that should end at `end`: a picture whose rows see each other both ways stays whole.

        room: rows that the chunk can have at the most.
        """
        if self._store.taken.both_ways:
            for _, span in request.pictures:
                if span.start < end < span.stop:
                    return span.stop if span.stop - start <= room else max(start, span.start)
        return end

    def advance(self, running: Iterable[Request], seconds: float, fail: Callable[[Request, ZincError], None]) -> bool:
        """Work for so long on the first picture that lacks rows; whether there was any. Raises `BackendError`.

        fail: gets each request whose picture memory has no room for, and the error.
        """
        running = [request for request in running if request.submit.pictures]
        if self._at_work is None:
            missing = next(filter(None, map(self._missing, running)), None)
            if missing is None:
                return False
            shown = missing[0]
            self._at_work = shown.placed, self._projector.start([tile.array for tile in shown.tiles])
        placed, work = self._at_work
        try:
            finished = work.advance(seconds)
        except MemoryPlanError as error:
            self._at_work = None
            for request in running:
                if any(shown.placed == placed for shown, _ in request.pictures):
                    fail(request, error)
            return True
        if finished:
            self._at_work = None
            needed = {s.placed.number for r in running for s, span in r.pictures if span.stop > r.computed}
            self._store.keep(placed, work.rows, needed)
        return True

    def lacking(self, running: Iterable[Request]) -> list[str]:
        """The ids of requests that wait for rows of a picture."""
        return [r.submit.id for r in running if r.submit.pictures and self._missing(r) is not None]
