"""Drills: lists of short sentences about one to three characters, for the middle of the training.

A story repeats its names every dozen tokens, too seldom for a small model to find out soon that names are copied
and not guessed. In a drill nearly everything is a name or a word like it: copying is most of what there is to learn.
"""

from __future__ import annotations

import random

from cast import HE_NAMES, KINDS, ROBOT_NAMES, SHE_NAMES

THINGS = (
    "map", "lantern", "kite", "drum", "boat", "basket", "bell", "book", "hat", "key", "blanket", "shell", "music box",
    "wooden horse", "red scarf", "silver coin", "clay pot", "little flag", "tin whistle", "paper star", "blue ball",
    "wheel", "ladder", "broom", "mirror",
)  # fmt: skip

LINES = (
    "{A} smiled.", "{A} looked at {B}.", "{B} looked at {A}.", '"Yes," said {A}.', '"No," said {B}.',
    '"Come with me," said {A} to {B}.', '"Thank you, {B}!" called {A}.', '"Thank you, {A}," said {B}.',
    "{A} had the {T}.", "{A} gave the {T} to {B}.", "{B} gave the {T} back to {A}.", "The {K} was happy.",
    "The {K} held the {T}.", "{B} laughed, and {A} laughed, too.", "{A} and {B} walked together.",
    'Then {A} said, "Good morning, {B}."', 'Then {B} said, "Good morning, {A}."', "{A} waited for {B}.",
    "{B} could not see {A}.", '"Where is the {T}?" asked {A}.', '"The {T} is here," answered {B}.',
    "Everyone knew {A}.", "{B} was the friend of {A}.", "The {K} sat down beside {B}.", "One day {A} was tired.",
    "{A} loved the {T}.", "The {L} listened to {A}.", "The {K} and the {L} were friends.", "{B} helped {A}.",
    '"I am {A}," said the {K}.', '"I am {B}," said the {L}.', "It was the {T} of {A}.", "{A} slept, and {B} slept.",
    'The {L} asked, "Are you well, {A}?"', '"Where is {B}?" asked {A}.', '"Where is {A}?" asked {B}.',
)  # fmt: skip


def drill(rng: random.Random) -> str:
    """One drill of 14 to 30 sentences; the characters are introduced in the first."""
    a, b = rng.sample([*HE_NAMES, *SHE_NAMES, *ROBOT_NAMES], 2)
    first, second = rng.sample([k.word for k in KINDS], 2)
    thing = rng.choice(THINGS)
    start = rng.choice(
        (
            "There was {k} named {A}. {A} had a friend, {l} named {B}.",
            "{A} was {k}. {B} was {l}.",
            "Once upon a time there lived {k} by the name of {A} and {l} by the name of {B}.",
        )
    ).format(A=a, B=b, k=_article(first), l=_article(second))
    body = [rng.choice(LINES).format(A=a, B=b, K=first, L=second, T=thing) for _ in range(rng.randint(14, 30))]
    return " ".join([start, *body])


def _article(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"
