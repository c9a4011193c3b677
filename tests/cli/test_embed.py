"""`zinc embed`: vectors as lines, cosines, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import zinc_rt

TEXTS = ["Once upon a time", "the dog", "a"]


def test_command(zinc, tmp_path: Path) -> None:
    outcome = zinc("embed", *TEXTS, "--device", "cpu", "--pooling", "mean")
    assert outcome.code == 0
    got = np.array([json.loads(line) for line in outcome.out.splitlines()], np.float32)
    with zinc_rt.load(device="cpu", kernels="reference", embeddings=True, pooling="mean") as model:
        assert (got == model.embed(TEXTS)).all()
    lines = tmp_path / "texts.txt"
    lines.write_text("the dog\nthe dog\na cat\n")
    table = zinc("embed", "-f", lines, "--similarity", "--device", "cpu").out
    cosines = np.array([[float(x) for x in line.split()] for line in table.splitlines()])
    assert cosines.shape == (3, 3)
    assert (cosines.diagonal() == 1.0).all()
    assert cosines[0, 1] == 1.0 > cosines[0, 2]
    for args, words in (
        (("",), "text 1 is empty"),
        (("a", "-f", lines), "given twice"),
        (("a", "--similarity", "--raw"), "leave out --raw"),
        (("a", "--pooling", "max"), "it must be mean, cls, last"),
    ):
        outcome = zinc("embed", *args)
        assert outcome.code == 2
        assert words in outcome.error
    assert "there are no texts" in zinc("embed", stdin="").error
