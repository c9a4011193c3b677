"""`Plan` and `Answer`: what is asked of the engine for one answer, and how far that is."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from zinc_rt.sampling.params import SamplingParams
from zinc_rt.scheduler.messages import Grammar, Usage
from zinc_rt.serving.api.reader import PlainReader, Reader
from zinc_rt.serving.api.textside import TextSide, TokenLogprob


@dataclass(frozen=True, slots=True)
class Plan:
    """One answer: a prompt and how to go on from it. reader: divides it; marks: special tokens that the reader sees;
    resume: its first tokens, which an engine has generated before; given: so many of them the client says, and nobody
    here knows it. echo: as in `Submit`; silent: nothing is generated but a token that nobody gets.
    """

    prompt: tuple[int, ...]
    params: SamplingParams
    seed: int
    stops: tuple[str, ...] = ()
    grammar: Grammar | None = None
    reader: Callable[[], Reader] = PlainReader
    marks: Collection[int] = ()
    resume: tuple[int, ...] = ()
    given: int = 0
    echo: int | None = None
    silent: bool = False


class Answer:
    """One answer while it is made. finish: why it ended, in OpenAI's words, once it has."""

    def __init__(self, index: int, plan: Plan, side: TextSide) -> None:
        self.index = index
        self.plan = plan
        self.side = side
        self.tokens: list[int] = []  # those of the text, up to the one that completes a stop string
        self.prompt_logprobs: list[TokenLogprob] = []  # from the prompt's second token on
        self.begun = False
        self.cached = 0
        self.queue_seconds = 0.0
        self.finish: str | None = None
        self.usage: Usage | None = None
        self.first: float | None = None  # when its first token came
        self.last = 0.0

    @property
    def resumed(self) -> int:
        """Tokens of it that were not generated for this request."""
        return min(len(self.plan.resume), len(self.tokens))
