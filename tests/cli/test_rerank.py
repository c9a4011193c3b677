"""`zinc rerank`: texts in order, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import zinc_rt
from tests.models.families.build import write_case
from tests.models.families.rankers import RANKERS

QUERY, TEXTS = "a red hen", ["the hen is red", "rain", "a tree stands in the sand"]


def test_command(zinc: Any, tmp_path: Path) -> None:
    path = write_case(tmp_path / "ranker.gguf", RANKERS["qwen3-reranker"]).path
    with zinc_rt.load(path, device="cpu", kernels="reference") as model:
        wanted = model.rerank(QUERY, TEXTS)
    said = zinc("rerank", "-m", path, QUERY, *TEXTS, "--device", "cpu", "--kernels", "reference")
    assert said.out.splitlines() == [f"{one.score:9.4f}  {one.text}" for one in wanted]
    lines = tmp_path / "texts.txt"
    lines.write_text("\n".join(TEXTS))
    said = zinc("rerank", "-m", path, QUERY, "-f", lines, "--json", "--top-n", "2", "--kernels", "reference")
    found = [json.loads(line) for line in said.out.splitlines()]
    assert [(one["index"], np.float32(one["relevance_score"])) for one in found] == [
        (one.index, np.float32(one.score)) for one in wanted[:2]
    ]
    for args, words in (
        (("-m", path, "a", "b", "-f", lines), "given twice"),
        (("a", "b"), "does not rank texts here; rerankers of"),
        (("-m", path, " ", "b"), "the query is empty"),
    ):
        outcome = zinc("rerank", *args)
        assert outcome.code == 2
        assert words in outcome.error
    assert "there are no texts" in zinc("rerank", "-m", path, "a", stdin="").error
    assert "ranks texts and embeds none" in zinc("embed", "-m", path, "a").error
    assert "zinc rerank" in zinc("show", path).out
