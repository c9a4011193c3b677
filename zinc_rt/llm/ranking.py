"""Ranking: how well texts answer a query, by models that read both at once (cross-encoders, rerankers)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zinc_rt.errors import UsageError
from zinc_rt.kernels.reference.mathfn import exp
from zinc_rt.llm.embedding import F32, Embedder
from zinc_rt.models.definition import Ranking
from zinc_rt.models.ranking import RANK, RANKERS
from zinc_rt.text.pairs import PairPrompt
from zinc_rt.utils.checks import show

NO_RANKER = (
    f"does not rank texts here; rerankers of architecture {RANKERS} do (pooling_type {RANK} in the file, as of"
    " Qwen3-Reranker and bge-reranker); with other models compare vectors (`zinc embed --similarity`, Model.embed)"
)
"""What is said of a model that is asked for scores and makes none."""


@dataclass(frozen=True, slots=True)
class RankedText:
    """A text in its place. index: of the text among those that were given. score: the larger, the better the text
    answers; what the model computes, without a sigmoid. Scores of different models do not compare.
    """

    index: int
    score: float
    text: str


def ranked(texts: Sequence[str], scores: F32, top_n: int | None = None) -> list[RankedText]:
    """The texts by falling score, of equal ones the earlier first. top_n: so many at the most.

    Raises `UsageError`.
    """
    if top_n is not None and (isinstance(top_n, bool) or not isinstance(top_n, int) or top_n < 1):
        raise UsageError(f"top_n is {show(top_n)}, it must be a whole number above 0")
    order = np.argsort(-scores, kind="stable")[:top_n]
    return [RankedText(int(i), float(scores[i]), texts[i]) for i in order]


@dataclass(frozen=True)
class Ranker:
    """Scores of texts. embedder: makes the numbers of a pair. ranking: what becomes a score of them. prompt: makes a
    pair's token ids.
    """

    embedder: Embedder
    ranking: Ranking
    prompt: PairPrompt

    def pairs(self, query: str, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of the query with each text. Raises `UsageError`, `TokenizerError`."""
        if not isinstance(query, str):
            raise UsageError(f"query is {show(query)}; give a text")
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                raise UsageError(f"text {i} is {show(text)}; give texts")
        return [self.prompt.encode(query, text) for text in texts]

    def scores(self, pairs: Sequence[Sequence[int]]) -> F32:
        """f32[n_pairs] of token ids. A score depends on its pair alone. Raises what `Embedder.embed` raises."""
        rows = self.embedder.embed(pairs, normalize=False)
        if not self.ranking.softmax or not len(rows):
            return rows[:, 0]
        weights = exp(rows - rows.max(axis=1, keepdims=True))
        total = weights[:, :1]
        for i in range(1, weights.shape[1]):
            total = total + weights[:, i : i + 1]
        return np.asarray((weights[:, :1] / total)[:, 0])
