"""Adapters of texts with pictures: each request has the bits that it has alone, with any of both."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import zinc_rt
from tests.adapters.files import story_adapters
from tests.llm.test_pictures import GREEDY, PIXELS, asking, shown
from tests.vision import towers


def test_beside_others(tmp_path: Path) -> None:
    first, second = story_adapters(tmp_path, "ab")
    with zinc_rt.load() as plain:
        tower = towers.write(tmp_path / "mmproj.gguf", "pixtral", n_out=plain.info.n_embd).path
    with zinc_rt.load(mmproj=tower) as plain:
        want = plain.chat(asking(shown(PIXELS)), params=GREEDY).text
    with zinc_rt.load(mmproj=tower, lora={"one": first, "two": second}, n_slots=4) as model:
        models = [model, model.with_adapter("one"), model.with_adapter("two")]
        questions = [asking(shown(PIXELS)), asking(text="What is this?"), asking(shown(PIXELS[::-1]))]
        pairs = [(one, question) for one in models for question in questions]
        alone = [one.chat(question, params=GREEDY).text for one, question in pairs]
        assert alone[0] == want
        assert len(set(alone)) > len(questions)
        with ThreadPoolExecutor(len(pairs)) as pool:
            together = list(pool.map(lambda pair: pair[0].chat(pair[1], params=GREEDY).text, pairs))
        assert together == alone
