"""`RequestOutput`: a request's events on their way to its caller.

Every client of an engine passes events through it, so a text ends in one place: at the token that completes a stop
string. The client then ends the request at once, even if its caller reads late. Tokens that the engine has computed
behind the stop string are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar, cast

from zinc_rt.scheduler.messages import Event, Failed, Finished, FinishReason, Submit, Token, Usage

T = TypeVar("T")


class RequestOutput(Generic[T]):
    """Turns the events of one request into pieces for its caller; in this class a piece is the event itself.

    A subclass overrides `piece`, and sets `stopped` where a stop string ends the text.

    Attributes:
        request: the request.
        stopped: whether a stop string has ended the text; no token behind it is a piece.
        over: whether there are no more pieces.
    """

    def __init__(self, request: Submit) -> None:
        self.request = request
        self.stopped = self.over = False
        self._resumed: list[T | BaseException] = []  # pieces of tokens that are resumed, until there is an event

    @property
    def ended(self) -> bool:
        """Whether the engine need not go on: a stop string has ended the text, or nothing more can be made of it."""
        return self.stopped or self.over

    def piece(self, event: Event) -> T | None:
        """What an event gives the caller, None for nothing. What it raises ends the request, and the caller gets it."""
        return cast("T", event)

    def begin(self) -> None:
        """Take the tokens that the request resumes: the first of its text. A client calls it before it submits."""
        for token_id in self.request.resume:
            if not self.ended:
                self._resumed += self._pieces(Token(self.request.id, token_id))

    def take(self, event: Event, error: BaseException | None = None) -> Sequence[T | BaseException]:
        """What an event gives the caller, an exception last. error: what is raised for `Failed`, unless the text had
        ended before.
        """
        if type(event) is Token and not (self.stopped or self.over or self._resumed):
            return self._pieces(event)
        return self._take_other(event, error)

    def _take_other(self, event: Event, error: BaseException | None) -> Sequence[T | BaseException]:
        if self.stopped and not self.over and isinstance(event, Token):
            return ()
        resumed, self._resumed = self._resumed, []
        if self.over:
            return resumed
        if isinstance(event, Token):
            return [*resumed, *self._pieces(event)]
        if not isinstance(event, Finished | Failed):
            return [*self._pieces(event), *resumed]  # nothing comes before the beginning of a request
        if self.stopped:
            usage = event.usage or Usage(len(self.request.prompt))
            event, error = Finished(event.id, FinishReason.stop, usage), None
        made = self._pieces(event) if error is None else [error]
        self.over = True
        return [*resumed, *made]

    def _pieces(self, event: Event) -> Sequence[T | BaseException]:
        try:
            made = self.piece(event)
        except Exception as error:
            self.over = True
            return (error,)
        return () if made is None else (made,)
