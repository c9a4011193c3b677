"""Models whose answer is a score: BERT's classifier, and Qwen3-Reranker's "yes" against "no".

`score` makes it of the last hidden rows of a query and a text put together.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.models.families import dense
from tests.models.families.build import Case, Shapes
from tests.models.families.common import Net, softmax
from tests.models.families.embedders import FIRST, bert_case, gelu_erf, jina_v2_case, layer_norm, modern_case

RANK = 4


def score(net: Net, tokens: list[int]) -> float:
    rows, architecture = net.logits(tokens), net.made.case.architecture
    last = (architecture == "qwen3") == net.does("pooling")
    x = rows[-1] if last else rows[0]
    if net.keys.get("classifier.pooling_type") == 1 and net.does("mean of rows"):
        x = rows.mean(axis=0)
    if net.has("cls.weight") and net.does("first layer"):
        x = net.product(x, "cls")
        if net.does("activation"):
            x = gelu_erf(x) if architecture == "modern-bert" else np.tanh(x)
    if net.has("cls.norm.weight"):
        x = layer_norm(net, x, "cls.norm")
    if net.has("cls.output.weight"):
        x = net.product(x, "cls.output")
    if architecture == "qwen3" and net.does("softmax"):
        x = softmax(x)
    return float(x[0])


def bert_ranker(name: str, first: bool, last: bool) -> Case:
    plain = bert_case(name, FIRST)
    n = plain.keys["embedding_length"]
    head: Shapes = {}
    if first:
        head |= {"cls.weight": (n, n), "cls.bias": (n,)}
    if last:
        head |= {"cls.output.weight": (1, n), "cls.output.bias": (1,)}
    wrong = ["pooling", "biases"] + ["first layer", "activation"] * first
    return replace(plain, keys={**plain.keys, "pooling_type": RANK}, shapes={**plain.shapes, **head}, wrong=wrong)


def qwen3_ranker() -> Case:
    labels = {"classifier.output_labels": ["yes", "no"]}
    plain = dense.case("qwen3", norms=True, head_dim=24, tied=True, pooling_type=RANK)
    plain = replace(plain, keys={**plain.keys, **labels})
    shapes = {**plain.shapes, "cls.output.weight": (2, plain.keys["embedding_length"])}
    return replace(plain, shapes=shapes, forward=dense.hidden, wrong=["pooling", "softmax", "causal"])


def modern_ranker(first: int) -> Case:
    plain = modern_case(RANK, classifier__pooling_type=first)
    n = plain.keys["embedding_length"]
    head: Shapes = {"cls.weight": (n, n), "cls.output.weight": (1, n), "cls.output.bias": (1,)}
    wrong = ["mean of rows" if first == 1 else "pooling", "activation", "biases"]
    shapes = {**plain.shapes, **head, "cls.norm.weight": (n,)}
    return replace(plain, shapes=shapes, wrong=wrong)


def jina_ranker() -> Case:
    """Jina's first: one layer, whose only output is the score."""
    plain = jina_v2_case()
    head: Shapes = {"cls.weight": (1, plain.keys["embedding_length"]), "cls.bias": (1,)}
    wrong = ["slopes", "activation", "pooling"]
    return replace(plain, keys={**plain.keys, "pooling_type": RANK}, shapes={**plain.shapes, **head}, wrong=wrong)


RANKERS = {
    "jina-bert-v2-reranker": jina_ranker(),
    "modern-bert-reranker": modern_ranker(2),
    "modern-bert-reranker-mean": modern_ranker(1),
    "qwen3-reranker": qwen3_ranker(),
    "bert-reranker": bert_ranker("bert", True, True),
    "bert-reranker-short": bert_ranker("bert", False, True),
    "bert-reranker-first": bert_ranker("bert", True, False),
}
