"""Models that rank texts: the layers which make a score of the vector of a query and a text put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from zinc_rt.models.definition import Ranking
from zinc_rt.models.errors import ModelError
from zinc_rt.models.graph_tensors import GraphTensors

RANK: Final = 4
"""`<architecture>.pooling_type` of a model that ranks."""
RANKERS: Final = "bert, modern-bert, jina-bert-v2 and qwen3"
"""The architectures whose files may rank, as messages say it."""


def ranks(metadata: Mapping[str, Any]) -> bool:
    """Whether a file says that its model ranks texts."""
    return bool(metadata.get(f"{metadata.get('general.architecture')}.pooling_type") == RANK)


def score_head(parts: GraphTensors, ranking: Ranking, *, activation: str = "tanh", eps: float = 0.0) -> None:
    """The head of a file that ranks: `cls` with its activation and, where there is one, a norm; then `cls.output`.

    Either of the two may be missing. The last one has as many rows as the model tells labels apart. eps: of the norm.

    Raises `ModelError`.
    """
    n, last = parts.info.n_embd, parts.has("cls.output.weight")
    if not last and not parts.has("cls.weight"):
        raise ModelError(
            f"{parts.info.architecture}.pooling_type is {RANK}, so that the model ranks texts, but there is neither"
            " cls.weight nor cls.output.weight to make scores with; the file may be from an older converter"
        )
    if parts.has("cls.weight"):
        rows = n if last else None
        parts.project_pooled("cls", rows, n, bias=True, activation=activation, norm="cls.norm", eps=eps)
    if last:
        parts.project_pooled("cls.output", None, n, bias=True)
    parts.ranking = ranking
