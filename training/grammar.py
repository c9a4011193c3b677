"""A small text grammar: alternation, slots, macros, articles and capital letters.

A template is plain English with three marks:

    [one|two|three]   pick one alternative (may be nested, may be empty)
    {slot}            a fact of this story; {Slot} is the same with a capital first letter
    @ word            "a" or "an", whichever the following word needs

Facts stay fixed for a whole story, so an entity keeps its name; macros are drawn anew at each use.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")
Fact = str | Callable[[], str]

_INNER = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{(\w+)\}")
_ARTICLE = re.compile(r"@ (?=(\S+))")
_AN_EXCEPTIONS = ("hour", "honest", "honour")
_A_EXCEPTIONS = ("use", "uni", "one", "once", "eu")


def article(word: str) -> str:
    """The indefinite article that goes before `word`."""
    low = word.lower().lstrip('"')
    if low.startswith(_AN_EXCEPTIONS):
        return "an"
    if low.startswith(_A_EXCEPTIONS):
        return "a"
    return "an" if low[:1] in "aeiou" else "a"


def capital(text: str) -> str:
    """Upper-case the first letter, which may stand behind an opening quote."""
    for i, c in enumerate(text):
        if c.isalpha():
            return text[:i] + c.upper() + text[i + 1 :]
    return text


class Scene:
    """Random choices and facts of one document."""

    def __init__(self, rng: random.Random, macros: Mapping[str, Sequence[str]]) -> None:
        self.rng = rng
        self.macros = macros
        self.facts: dict[str, Fact] = {}
        self.used: set[str] = set()

    def set(self, **facts: Fact) -> None:
        """Set facts of the scene."""
        self.facts.update(facts)

    def pick(self, options: Sequence[T]) -> T:
        """Choose one of the options at random."""
        return options[int(self.rng.random() * len(options))]

    def chance(self, p: float) -> bool:
        """True with probability `p`."""
        return self.rng.random() < p

    def value(self, key: str) -> str:
        """The value of a fact."""
        low = key[0].lower() + key[1:]
        if low in self.facts:
            fact = self.facts[low]
            text = fact if isinstance(fact, str) else fact()
        elif low in self.macros:
            text = self.pick(self.macros[low])
        else:
            raise KeyError(f"no fact or macro named {low!r}")
        return capital(text) if key[0].isupper() else text

    def fill(self, template: str) -> str:
        """Expand one template completely; articles and capitals are settled last."""
        text = template
        for _ in range(12):
            before = text
            text = _INNER.sub(lambda m: self.pick(m.group(1).split("|")), text)
            text = _SLOT.sub(lambda m: self.value(m.group(1)), text)
            if text == before:
                break
        text = _ARTICLE.sub(lambda m: article(m.group(1)) + " ", text)
        return re.sub(r" {2,}", " ", text).strip()

    def say(self, *options: str) -> str:
        """One of the templates, filled and capitalised; none twice in a story if possible."""
        template = self.pick([o for o in options if o not in self.used] or options)
        if template:
            self.used.add(template)
        return capital(self.fill(template))
