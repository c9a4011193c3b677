"""The levels of the ladder, each as what it asks of a server and what must be equal then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

from zinc_rt.certify.answers import AnswerDifference, ProbeAnswer, first_difference
from zinc_rt.certify.server import Answered, AskedServer, RefusedRequest
from zinc_rt.certify.workload import TEMPERATURE, ProbeRequest, company, digest_of, long_request, neighbours, probes
from zinc_rt.errors import ZincError

LEVELS: Final = {
    "L0": "repeat: the same request again",
    "L1": "company: beside other requests",
    "L2": "cache: after other prompts, evicted prefixes, long and short ones",
    "L3": "configurations: other threads, batches, speculation",
    "L4": "machines",
    "L5": "receipts: signed, in a chain, computed again",
}
_WORDS: Final = (800, 400, 200, 100, 50, 25)
"""Lengths of long prompts, the first that the server takes is used."""


class LadderVerdict(StrEnum):
    """What is known of a level. Only `holds` is a promise kept."""

    holds = "holds"
    fails = "fails"
    not_offered = "not offered"
    not_tried = "not tried"


@dataclass
class Comparison:
    """Answers of one kind, greedy or sampled, that were compared.

    equal, different: answers; refused: requests that the server did not answer. tokens: compared by their
    log-probabilities. characters: of texts. first: the first difference, in words.
    """

    equal: int = 0
    different: int = 0
    refused: int = 0
    tokens: int = 0
    characters: int = 0
    first: str = ""

    def add(self, request: ProbeRequest, expected: ProbeAnswer, found: Answered, state: str) -> None:
        """Compare one answer with what the server said to the request alone. state: when it was asked, in words."""
        if isinstance(found, RefusedRequest):
            self.refused += 1
            self.first = self.first or f"{state}: {found}"
            return
        self.note(request.prompt, first_difference(expected, found), found, state)

    def note(self, name: str, difference: AnswerDifference | None, found: ProbeAnswer, state: str) -> None:
        """Count a comparison that was made."""
        self.tokens += len(found.logprobs)
        self.characters += len(found.text)
        if difference is None:
            self.equal += 1
            return
        if not self.different:
            self.first = f"{state}: {difference} ({name[-30:]!r})"
        self.different += 1

    @property
    def verdict(self) -> LadderVerdict:
        """`not tried` also where there was nothing in the answers to compare, or not all were given."""
        if self.different:
            return LadderVerdict.fails
        if self.refused or not self.equal or not (self.tokens or self.characters):
            return LadderVerdict.not_tried
        return LadderVerdict.holds


@dataclass
class LevelResult:
    """A level. why: in words, where it does not hold, and what limits what was seen where it does."""

    level: str
    greedy: Comparison = field(default_factory=Comparison)
    sampled: Comparison = field(default_factory=Comparison)
    why: str = ""
    given: LadderVerdict | None = None
    """The verdict, where it is not that of the comparisons."""

    def of(self, request: ProbeRequest) -> Comparison:
        """The comparison that a request counts for."""
        return self.sampled if request.sampled else self.greedy

    @property
    def verdict(self) -> LadderVerdict:
        """Of both kinds: it holds where both hold."""
        if self.given is not None:
            return self.given
        both = [one.verdict for one in (self.greedy, self.sampled) if one.equal + one.different + one.refused]
        for verdict in (LadderVerdict.fails, LadderVerdict.not_tried, LadderVerdict.holds):
            if verdict in both:
                return verdict
        return LadderVerdict.not_tried

    def to_json(self) -> dict[str, Any]:
        """As reports have it."""
        found: dict[str, Any] = {"level": self.level, "name": LEVELS[self.level], "verdict": str(self.verdict)}
        for name, one in (("greedy", self.greedy), ("sampled", self.sampled)):
            if one.equal + one.different + one.refused:
                found[name] = {"verdict": str(one.verdict), **asdict(one)}
        return found | ({"why": self.why} if self.why else {})


@dataclass
class Ladder:
    """The levels of one server. load: requests at once. repeats: of each request. evictions: long prompts that push
    prefixes out of the server's cache. told: gets a line for each level that begins. observed: what the server said to
    each request alone, once it had been asked for the first time.
    """

    server: AskedServer
    load: int
    repeats: int
    max_tokens: int
    evictions: int
    told: Callable[[str], None] = lambda line: None
    observed: dict[ProbeRequest, ProbeAnswer] = field(default_factory=dict)
    offered: dict[str, str] = field(default_factory=dict)

    def climb(self) -> list[LevelResult]:
        """Levels 0 to 2. Raises `ZincError` where the server does not answer the requests alone."""
        self.told(f"{self.server.base}: {self.server.model}, {self.server.path}")
        return [self._repeat(), self._company(), self._cache()]

    def _alone(self, requests: Sequence[ProbeRequest], level: LevelResult, state: str) -> list[Answered]:
        """Ask one after another and compare with what was said before; the answers."""
        found = [self.server.ask(request) for request in requests]
        self._compare(requests, found, level, state)
        return found

    def _compare(
        self, requests: Sequence[ProbeRequest], answers: Sequence[Answered], level: LevelResult, state: str
    ) -> None:
        for request, answer in zip(requests, answers):
            if (expected := self.observed.get(request)) is not None:
                level.of(request).add(request, expected, answer, state)

    def _repeat(self) -> LevelResult:
        self.told("L0: the same requests again")
        requests = probes(self.max_tokens)
        for request in requests:
            answer = self.server.ask(request)
            if isinstance(answer, RefusedRequest):
                raise ZincError(f"{self.server.base} does not answer the first requests: {answer}")
            self.observed[request] = answer
        level = LevelResult("L0")
        for turn in range(self.repeats):
            self._alone(requests, level, f"repeat {turn + 1}")
        self._note_offers(level)
        return level

    def _note_offers(self, level: LevelResult) -> None:
        """What the server has of what could be compared."""
        answers = [*self.observed.values()]
        offered = "not offered" if self.server.logprobs else "refused"
        self.offered["log-probabilities"] = "offered" if all(a.logprobs or not a.text for a in answers) else offered
        self.offered["seed"] = "taken" if self.server.seeds else "refused"
        told = any(answer.cached is not None for answer in answers)
        self.offered["cached tokens"] = "told" if told else "not told"
        half = len(answers) // 2
        if [a.text for a in answers[:half]] == [a.text for a in answers[half:]]:
            level.why = f"texts at temperature {TEMPERATURE:g} are the greedy ones"
        if not self.server.seeds:
            level.why = "the server refuses seeds, so drawn texts cannot be asked for again"

    def _company(self) -> LevelResult:
        self.told(f"L1: {self.load} requests at once")
        level = LevelResult("L1")
        for turn in range(2):
            requests = [*self.observed][::-1] if turn else [*self.observed]
            for at in range(0, len(requests), self.load):
                part = requests[at : at + self.load]
                others = company(self.load - len(part), turn, self.max_tokens)
                together = [*others[::2], *part, *others[1::2]]
                self._compare(together, self.server.ask_together(together), level, f"{self.load} at once")
        return level

    def _cache(self) -> LevelResult:
        self.told("L2: other states of the cache")
        level, requests = LevelResult("L2"), [*self.observed]
        for request in requests:
            for other in neighbours(request):
                self.server.ask(other)
            self._alone([request], level, "after prompts that begin alike")
        warm = self._alone(requests[::-1], level, "in another order")
        words = self._longest()
        if not words:
            level.why = "the server takes no long prompts, so nothing was evicted"
            return level
        together = [long_request(number, words) for number in range(2)]
        found = self.server.ask_together([*together, *requests])[len(together) :]
        self._compare(requests, found, level, "beside long prompts")
        pushing = [long_request(100 + number, words) for number in range(self.evictions)]
        for at in range(0, len(pushing), self.load):  # together, so that they do not take one another's place
            self.server.ask_together(pushing[at : at + self.load])
        cold = self._alone(requests, level, f"after {self.evictions} long prompts")
        level.why = _evicted(warm[-1], cold[0])
        return level

    def _longest(self) -> int:
        """Words of the longest prompt of `_WORDS` that the server takes; 0 for none."""
        taken = (n for n in _WORDS if isinstance(self.server.ask(long_request(99, n)), ProbeAnswer))
        return next(taken, 0)

    def report(self, levels: Sequence[LevelResult], machine: str) -> dict[str, Any]:
        """The server's part of a report, with all that another report can be compared with."""
        observed = [{**asdict(request), **asdict(answer)} for request, answer in self.observed.items()]
        return {
            "url": self.server.base,
            "model": self.server.model,
            "machine": machine,
            "endpoint": self.server.path,
            "workload": digest_of([*self.observed]),
            "load": self.load,
            "offered": self.offered,
            "levels": [level.to_json() for level in levels],
            "observations": observed,
        }


def _evicted(warm: Answered, cold: Answered) -> str:
    """Whether a prefix was seen to be in the cache, and then not to be; empty where it was. Of one request."""
    before, after = (answer.cached if isinstance(answer, ProbeAnswer) else None for answer in (warm, cold))
    if before is None or after is None:
        return "the server does not tell what was in its cache"
    if after >= before:
        return f"no prefix was seen to be evicted (cached tokens: {before}, then {after}); give a larger --evict"
    return ""
