"""Finding special tokens in text in one pass (Aho and Corasick, "Efficient string matching", 1975).

For each character of a text the matcher knows the longest token that ends there. Other tokens that end there
are ends of that one, and `SpecialTokenMatcher.fitting` finds the longest of them that is short enough.
"""

from __future__ import annotations

import re
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

_AT_ONCE = 64  # characters that are looked at one by one before the search for a token's first character goes on


@dataclass(frozen=True)
class SpecialToken:
    """A token that is recognised in text as a whole."""

    id: int
    text: str
    only_if_parsed: bool  # control tokens: recognised only when the caller asks for special tokens to be parsed
    eats_left: bool = False  # white space before it belongs to it
    eats_right: bool = False  # white space after it belongs to it


class SpecialTokenMatcher:
    """Finds tokens, given by rank: their position in `tokens`. Of equal texts the first one counts."""

    def __init__(self, tokens: Sequence[SpecialToken]) -> None:
        self.tokens = tokens
        self.lengths = [len(token.text) for token in tokens]
        self._goto: list[dict[str, int]] = [{}]  # of each state, which stands for the start of a token
        self._best = [-1]  # rank of the longest token that ends a state's text, -1 for none
        ends = {self._add(token.text): rank for rank, token in reversed(list(enumerate(tokens)))}
        for state, rank in ends.items():
            self._best[state] = rank
        self._fall = [0] * len(self._goto)  # the longest other state that ends a state's text
        # The longest other token that ends a token, and one further down, so that long rows are passed in few steps.
        self._shorter, self._jump, self._depth = ([-1] * len(tokens) for _ in range(3))
        self._link(ends)
        first = "".join(map(re.escape, self._goto[0]))
        self._first = re.compile(f"[{first}]") if first else None

    def find(self, text: str) -> dict[int, array[int]]:
        """Where tokens end in `text`, ascending, by the rank of the longest one that ends there."""
        ends: dict[int, array[int]] = {}
        goto, fall, best = self._goto, self._fall, self._best
        at = state = 0
        while at < len(text):
            if not state:
                match = self._first.search(text, at) if self._first else None
                if match is None:
                    break
                at = match.start()
            for end, char in enumerate(text[at : at + _AT_ONCE], at + 1):
                following = goto[state].get(char)
                while following is None and state:
                    state = fall[state]
                    following = goto[state].get(char)
                state = following or 0
                rank = best[state]
                if rank >= 0:
                    try:
                        ends[rank].append(end)
                    except KeyError:
                        ends[rank] = array("Q", [end])
            at += _AT_ONCE
        return ends

    def fitting(self, rank: int, length: int) -> int:
        """The longest token of at most `length` characters that ends the token of `rank`, -1 for none."""
        lengths = self.lengths
        while rank >= 0 and lengths[rank] > length:
            jump = self._jump[rank]
            rank = jump if jump >= 0 and lengths[jump] > length else self._shorter[rank]
        return rank

    def _add(self, text: str) -> int:
        """The state of a whole token."""
        state = 0
        for char in text:
            following = self._goto[state].get(char)
            if following is None:
                following = self._goto[state][char] = len(self._goto)
                self._goto.append({})
                self._best.append(-1)
            state = following
        return state

    def _link(self, ends: dict[int, int]) -> None:
        """Fill in what states and tokens fall back to, the short ones first."""
        waiting = deque(self._goto[0].values())
        while waiting:
            state = waiting.popleft()
            below = self._best[self._fall[state]]
            if state in ends:
                self._link_token(ends[state], below)
            else:
                self._best[state] = below
            for char, following in self._goto[state].items():
                fall = self._fall[state]
                while fall and char not in self._goto[fall]:
                    fall = self._fall[fall]
                self._fall[following] = self._goto[fall].get(char, 0)
                waiting.append(following)

    def _link_token(self, rank: int, below: int) -> None:
        """Skew-binary jumps (Myers, "An applicative random-access stack", 1983)."""
        depth, jump = self._depth, self._jump
        self._shorter[rank] = jump[rank] = below
        depth[rank] = depth[below] + 1 if below >= 0 else 0
        far = jump[below] if below >= 0 else -1
        further = jump[far] if far >= 0 else -1
        if further >= 0 and depth[below] - depth[far] == depth[far] - depth[further]:
            jump[rank] = further
