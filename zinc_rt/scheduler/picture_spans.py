"""Where the pictures of a request stand in its prompt."""

from __future__ import annotations

from collections.abc import Sequence

from zinc_rt.engine.pictures import picture_row
from zinc_rt.errors import UsageError
from zinc_rt.vision.shown import ShownPicture


def picture_spans(prompt: Sequence[int], pictures: Sequence[ShownPicture]) -> tuple[tuple[ShownPicture, range], ...]:
    """The pictures in order of the prompt, with the places from the first row to the last one. A picture may stand in
    it several times; its rows come in order, with words between those of tiles.

    Raises `UsageError` for rows of no picture, and for rows that are out of order or missing.
    """
    known = {shown.placed.number: shown for shown in pictures}
    found: list[tuple[ShownPicture, range]] = []
    inside: ShownPicture | None = None
    begin = following = 0
    for at, token in enumerate(prompt):
        if token >= 0:
            continue
        number, row = picture_row(token)
        shown = known.get(number)
        if shown is None or row >= shown.placed.n_rows:
            raise UsageError(f"token {at} of the prompt is below 0 and no row of the request's pictures")
        if inside is None and row == 0:
            inside, begin, following = shown, at, 0
        if shown is not inside or row != following:
            raise UsageError(f"token {at} of the prompt is row {row} of a picture, out of order")
        following += 1
        if following == shown.placed.n_rows:
            found.append((shown, range(begin, at + 1)))
            inside = None
    if inside is not None:
        raise UsageError(f"the prompt ends within a picture, at row {following} of {inside.placed.n_rows}")
    return tuple(found)
