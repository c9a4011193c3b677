"""Checks that a request, the scheduler and the engine agree on how far the request is."""

from __future__ import annotations

from zinc_rt.errors import IntegrityError
from zinc_rt.scheduler.batch import Slot
from zinc_rt.scheduler.request import Request


def check_place(request: Request, place: int, slot: Slot, *, returns: bool) -> None:
    """Raise `IntegrityError` unless a running request is where the scheduler has it. returns: whether sequences go
    back further than to a wrong guess, so that a text's last tokens may have to be computed again.
    """
    known = slot.prefilled_tokens + max(0, slot.generated_tokens - 1)
    behind = returns and slot.generated_tokens and request.computed < known
    if request.place != place or (known != request.computed and not behind):
        raise IntegrityError(f"request {request.id} has {request.computed} tokens computed, not as {slot}")


def check_held(request: Request, n_held: int) -> None:
    """Raise `IntegrityError` unless a request's sequence holds as many tokens as are computed."""
    if n_held != request.computed:
        raise IntegrityError(
            f"request {request.id} has {request.computed} tokens computed, its sequence holds {n_held}"
        )
