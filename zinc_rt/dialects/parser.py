"""`StreamParser`: divides an answer into reasoning, content and tool calls while it is generated."""

from __future__ import annotations

from collections.abc import Sequence

from zinc_rt.dialects.deltas import Delta
from zinc_rt.dialects.record import Dialect, Thinking
from zinc_rt.dialects.tools import Tool


class StreamParser:
    """Reads one answer. What the joined deltas are does not depend on how the text is cut into pieces.

    Nothing is dropped but marks, and white space beside them: a call that cannot be parsed is content.
    """

    def __init__(
        self,
        dialect: Dialect,
        tools: Sequence[Tool] = (),
        thinking: Thinking = Thinking.possible,
        salt: str = "",
    ) -> None:
        """tools: those that the model may call; without any, no call is looked for. thinking: where the prompt leaves
        the model (`Dialect.thinking`). salt: makes ids of calls; another one for each request.
        """
        raise NotImplementedError

    def add(self, text: str) -> list[Delta]:
        """The deltas that the next piece of text completes, maybe none. The text has the dialect's marks in it, as
        `Detokenizer(shown=dialect.mark_ids(tokenizer))` gives it.
        """
        raise NotImplementedError

    def finish(self) -> list[Delta]:
        """What was held back, at the end of the answer."""
        raise NotImplementedError
