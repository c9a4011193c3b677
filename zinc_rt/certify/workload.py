"""The requests of `zinc certify`: fixed texts in plain words, so that small models and small contexts can take them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Final

TEMPERATURE: Final = 0.9
_SHARED: Final = (
    "Once upon a time there was a small house near the woods. A girl lived in it with her cat and her old dog. "
    "Each day they went to the river. One day it was cold. "
)
_PROMPTS: Final = (
    _SHARED + "Tell me what they saw.",
    _SHARED + "Tell me who came to the house.",
    "Tell me of a brave pig.",
    "Tell me of the sea and of a boat that was lost in the night.",
)
_PLACES: Final = ("a hill", "a garden", "an old tree", "a lake", "a farm", "a bridge", "a town", "a small shop")
_LONG: Final = "The boy had a red ball and the girl had a blue one and they went home. "
_LONG_WORDS: Final = 17


@dataclass(frozen=True)
class ProbeRequest:
    """A request. prompt: the message of the user. temperature: 0 takes the likeliest token; seed: of the others."""

    prompt: str
    temperature: float
    seed: int
    max_tokens: int

    @property
    def sampled(self) -> bool:
        """Whether tokens are drawn."""
        return self.temperature > 0


def probes(max_tokens: int) -> list[ProbeRequest]:
    """The requests whose answers are compared: each prompt greedily, and drawn with a seed of its own."""
    greedy = [ProbeRequest(prompt, 0.0, 1, max_tokens) for prompt in _PROMPTS]
    return greedy + [ProbeRequest(prompt, TEMPERATURE, 11 + i, max_tokens) for i, prompt in enumerate(_PROMPTS)]


def company(count: int, turn: int, max_tokens: int) -> list[ProbeRequest]:
    """Other requests, of other lengths, for the time in which the probes run. turn: 0, 1 and so on give other ones."""
    made = []
    for i in range(count):
        text = " ".join(f"Tell me of {_PLACES[(i + j + turn) % len(_PLACES)]}." for j in range(1 + i % 5))
        temperature = TEMPERATURE if i % 2 else 0.0
        made.append(ProbeRequest(f"{text} Begin with {turn * 1000 + i}.", temperature, i, max(1, max_tokens - i % 7)))
    return made


def neighbours(probe: ProbeRequest) -> list[ProbeRequest]:
    """Requests that begin as a probe does, one shorter and one longer."""
    words = probe.prompt.split()
    ends = (" ".join(words[: max(1, len(words) // 2)]), probe.prompt + " Tell me of the dog, too.")
    return [ProbeRequest(prompt, 0.0, 1, 2) for prompt in ends]


def long_request(number: int, words: int) -> ProbeRequest:
    """A long prompt that begins as no other does, and one token of an answer."""
    text = _LONG * (words // _LONG_WORDS + 1)
    return ProbeRequest(f"{_PLACES[number % len(_PLACES)].title()}, day {number}. {text}What came next?", 0.0, 1, 1)


def digest_of(requests: list[ProbeRequest]) -> str:
    """What tells two workloads apart."""
    return hashlib.sha256(json.dumps([asdict(one) for one in requests]).encode()).hexdigest()
