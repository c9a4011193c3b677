"""`Delivery`: a request's events on their way to its caller, as pieces of its text.

Every client of an engine delivers through it, so stop strings are looked for in one place, as soon as a token is there:
what the engine gives behind one reaches nobody, and the client ends the request at once, however late its caller reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from zinc_rt.scheduler.messages import Event, Failed, Finished, FinishReason, Submit, Token, Usage

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Text(Protocol[T_co]):
    """Makes of one request's events what its caller gets. It belongs to the `Delivery` that feeds it."""

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended the text; the next event is `Finished` then."""
        ...

    def take(self, event: Event) -> T_co | None:
        """What an event gives the caller, None for nothing. What it raises ends the request, and the caller gets it."""
        ...


class EventPieces:
    """A text whose pieces are the events themselves."""

    stopped = False

    def take(self, event: Event) -> Event:
        """See `Text`."""
        return event


class Delivery(Generic[T]):
    """The pieces of one request. Tokens that it resumes are the first of its text.

    Attributes:
        over: whether there are no more pieces.
        ended: whether the engine need not go on: a stop string has ended the text, or nothing more can be made of it.
    """

    def __init__(self, request: Submit, text: Text[T]) -> None:
        self._request, self._text = request, text
        self.over = self.ended = False
        self._known: list[T | BaseException] = []  # of tokens that are resumed, until there is an event
        for token_id in request.resume:
            if not self.ended:
                self._known += self._made(Token(request.id, token_id))

    def take(self, event: Event, error: BaseException | None = None) -> Sequence[T | BaseException]:
        """What an event gives the caller, an exception last. error: what is raised for `Failed`, unless the text had
        ended before.
        """
        if self.ended:
            if self.over:
                known, self._known = self._known, []
                return known
            if isinstance(event, Token):
                return ()
            if isinstance(event, Finished | Failed):
                usage = event.usage or Usage(len(self._request.prompt))
                event, error = Finished(event.id, FinishReason.stop, usage), None
        if isinstance(event, Token):
            made = self._made(event)
        elif isinstance(event, Finished | Failed):
            made = self._made(event) if error is None else [error]
            self.over = self.ended = True
        else:  # nothing comes before a request's beginning, not even the tokens that are known
            made = self._made(event)
            known, self._known = self._known, []
            return [*made, *known]
        if self._known:
            made, self._known = [*self._known, *made], []
        return made

    def _made(self, event: Event) -> Sequence[T | BaseException]:
        try:
            made = self._text.take(event)
            self.ended = self.over or self._text.stopped
        except Exception as error:
            self.over = self.ended = True
            return [error]
        return () if made is None else (made,)
