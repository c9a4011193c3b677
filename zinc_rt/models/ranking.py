"""Models that rank texts: the layers which make a score of the vector of a query and a text put together."""

from __future__ import annotations

from typing import Final

from zinc_rt.models.definition import Ranking
from zinc_rt.models.errors import ModelError
from zinc_rt.models.graph_tensors import GraphTensors
from zinc_rt.models.keys import Keys

RANK: Final = 4
"""`<architecture>.pooling_type` of a model that ranks."""
RANKERS: Final = "bert, modern-bert, jina-bert-v2 and qwen3"
"""The architectures whose files may rank, as messages say it."""


def ranks(keys: Keys) -> bool:
    """Whether the file says that it ranks texts. Raises `ModelError`."""
    return keys.integer("pooling_type", 0, minimum=0) == RANK


def score_head(
    parts: GraphTensors, keys: Keys, ranking: Ranking, *, activation: str = "tanh", eps: float = 0.0
) -> None:
    """The head of a file that ranks: `cls` with its activation and, where there is one, a norm; then `cls.output`.

    Either of the two may be missing. The last one has as many rows as the model tells labels apart. eps: of the norm.

    Raises `ModelError`.
    """
    n, last = parts.info.n_embd, parts.has("cls.output.weight")
    if not last and not parts.has("cls.weight"):
        raise ModelError(
            f"{keys.name('pooling_type')} is {RANK}, so that the model ranks texts, but there is neither cls.weight nor"
            " cls.output.weight to make scores with; the file may be from an older converter"
        )
    if parts.has("cls.weight"):
        rows = n if last else None
        parts.project_pooled("cls", rows, n, bias=True, activation=activation, norm="cls.norm", eps=eps)
    if last:
        parts.project_pooled("cls.output", None, n, bias=True)
    parts.ranking = ranking
