"""lm-evaluation-harness against `zinc serve`, with a task made here. Needs the extra `clients`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import zinc_rt
from tests.serving.clients.listener import listening
from tests.serving.command import Command
from zinc_rt.sampling.sampler import logprobs

pytestmark = pytest.mark.slow

ROWS: list[dict[str, Any]] = [
    {"q": "Once upon a", "choices": [" time", " fox", " door"], "gold": 0},
    {"q": "There was a little", "choices": [" girl", " Tuesday", " boy"], "gold": 0},
    {"q": "The sun was", "choices": [" shining", " eating the", " purple<|endoftext|>"], "gold": 0},
]
PICK: dict[str, Any] = {
    "task": "pick",
    "dataset_path": "json",
    "test_split": "test",
    "output_type": "multiple_choice",
    "doc_to_text": "{{q}}",
    "doc_to_target": "gold",
    "doc_to_choice": "{{choices}}",
    "target_delimiter": "",
    "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
}
TELL: dict[str, Any] = {
    **{key: value for key, value in PICK.items() if key != "doc_to_choice"},
    "task": "tell",
    "output_type": "generate_until",
    "doc_to_target": "{{choices[gold]}}",
    "generation_kwargs": {"until": ["."], "max_gen_toks": 12},
    "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the tasks' questions."""
    path = tmp_path_factory.mktemp("task") / "rows.json"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    return path


def evaluate(server: str, rows: Path, task: dict[str, Any], chat: bool = False, more: str = "") -> list[Any]:
    """The harness's answers, by question. server: its address."""
    lm_eval = pytest.importorskip("lm_eval")
    path = "chat/completions" if chat else "completions"
    found = lm_eval.simple_evaluate(
        model=f"local-{path.replace('/', '-')}",
        model_args=f"model=story,base_url={server}/v1/{path},max_length=512{more}",
        tasks=[{**task, "dataset_kwargs": {"data_files": {"test": str(rows)}}}],
        apply_chat_template=chat,
        bootstrap_iters=0,
        log_samples=True,
    )
    samples = sorted(found["samples"][task["task"]], key=lambda sample: sample["doc_id"])
    return [[response for (response,) in sample["resps"]] for sample in samples]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is asked of the hub."""
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))


@pytest.mark.parametrize("more", ["", ",batch_size=4", ",num_concurrent=3"])
def test_scores_of_continuations(story: Command, rows: Path, more: str) -> None:
    """They are sums of the logits' log-probabilities, and the likeliest tokens are known as such."""
    with zinc_rt.load() as model:
        for row, found in zip(ROWS, evaluate(story.url, rows, PICK, more=more), strict=True):
            n = len(model.tokenize(row["q"]))
            for choice, (total, greedy) in zip(row["choices"], found, strict=True):
                ids = model.tokenize(row["q"] + choice)
                logits = model.logits(ids).astype("float64")
                values = [logprobs(logits[i - 1], ids[i], 1)[0] for i in range(n, len(ids))]
                assert total == pytest.approx(sum(values), abs=1e-9)
                assert greedy == all(logits[i - 1].argmax() == ids[i] for i in range(n, len(ids)))


def test_generated_texts(story: Command, rows: Path) -> None:
    with listening(story.url) as proxy, zinc_rt.load() as model:
        for row, (text,) in zip(ROWS, evaluate(proxy.url, rows, TELL), strict=True):
            assert text == model.generate(row["q"], max_tokens=12, temperature=0.0, stop=".").text
        for row, (text,) in zip(ROWS, evaluate(proxy.url, rows, TELL, chat=True), strict=True):
            asked = [{"role": "user", "content": row["q"]}]
            assert text == model.chat(asked, max_tokens=12, temperature=0.0, stop=".").text
        assert {one.path for one in proxy.heard if one.status != 200} == set()
