"""The benchmark of the native tier: its arithmetic, its random models, what it writes down. Never how fast it is."""

from __future__ import annotations

import json
import platform
import re
import stat
import sys
from pathlib import Path
from types import ModuleType

import gguf
import numpy as np
import pytest

from tests.helpers import engine_for
from zinc_rt.engine.engine import SequenceChunk
from zinc_rt.gguf import GGMLType


@pytest.fixture
def toy(bench: dict[str, ModuleType], tmp_path: Path) -> Path:
    path = tmp_path / "toy-q8_0.gguf"
    bench["random_model"].write(path, "toy-q8_0")
    return path


def test_figures(bench: dict[str, ModuleType]) -> None:
    figure, goal = bench["report"].Figure("tokens/s"), bench["rows"].Goal
    for ours, peer in ((30.0, 20.0), (40.0, 25.0), (50.0, 10.0)):
        figure.add(ours, peer, 500e6, 25.0)
    assert figure.ratio == 2.0
    assert figure.shares == [0.6, 0.8, 1.0]
    assert figure.peer_shares == [0.4, 0.5, 0.2]
    assert figure.reaches(goal(2.0, 0.8)) is True
    assert figure.reaches(goal(2.0, 0.81)) is False
    assert figure.reaches(goal(2.01, 0.8)) is False
    assert figure.reaches(goal()) is None


def test_figures_of_which_less_is_better(bench: dict[str, ModuleType]) -> None:
    figure, goal = bench["report"].Figure("s"), bench["rows"].Goal
    figure.add(0.5, 1.5, None, None)
    assert figure.ratio == 3.0
    assert figure.reaches(goal(ratio=3.0, limit=0.5)) is True
    assert figure.reaches(goal(limit=0.49)) is False
    alone = bench["report"].Figure("s")
    alone.add(0.5, None, None, None)
    assert alone.ratio is None
    assert alone.reaches(goal(ratio=1.0, limit=0.5)) is None


def test_bytes_of_a_step(bench: dict[str, ModuleType], toy: Path) -> None:
    traffic = bench["ours"].Traffic.read(toy)
    tensors = gguf.GGUFReader(toy).tensors
    assert traffic.weights == sum(int(t.n_bytes) for t in tensors if len(t.shape) == 2)
    kv = 28 * 2 * 64 * 2  # layers, keys and values, one head of 64, float16
    row = bench["rows"].Row("x/y", bench["rows"].Kind.BATCH, "toy", 32, depth=16, streams=16)
    assert traffic.step(row) == traffic.weights + 16 * kv * 32


def test_a_random_model_runs(toy: Path) -> None:
    with engine_for(toy, n_batch=4) as engine:
        logits = engine.step([SequenceChunk(engine.open_sequence(), 0, [1, 2, 3], logits_indices=(2,))]).logits
        assert logits.shape == (1, 512)
        assert np.isfinite(logits).all()
        assert logits.std() > 0.01


@pytest.mark.parametrize("kind", [GGMLType.Q8_0, GGMLType.Q4_0, GGMLType.Q4_K, GGMLType.Q6_K, GGMLType.BF16])
def test_random_weights_are_centred(bench: dict[str, ModuleType], kind: GGMLType) -> None:
    raw = bench["random_model"].pool(kind, np.random.default_rng(1))
    values = gguf.quants.dequantize(raw.reshape(256, -1), gguf.GGMLQuantizationType(int(kind)))
    assert abs(values.mean()) < 1e-3
    assert values.std() == pytest.approx(0.02, rel=0.1)


def test_the_medium_mix(bench: dict[str, ModuleType]) -> None:
    model = bench["random_model"]
    sizes = model.SIZES["qwen3-0.6b"]
    six = [
        name
        for name, role, layer, shape in model.shapes(sizes)
        if len(shape) == 2 and sizes.format_of(role, layer, "q4_k_m") is GGMLType.Q6_K
    ]
    layers = {*range(3), *range(24, 28), *range(5, 24, 3)}
    expected = {f"blk.{i}.{role}.weight" for i in layers for role in ("attn_v", "ffn_down")} | {"token_embd.weight"}
    assert set(six) == expected


def test_vocabulary(bench: dict[str, ModuleType]) -> None:
    tokens, merges = bench["random_model"].vocabulary(151_936)
    assert len(tokens) == len(set(tokens)) == 151_936
    known = set(tokens)
    assert all(set(merge.split(" ")) <= known for merge in merges)


def test_table(bench: dict[str, ModuleType]) -> None:
    rows = bench["rows"].table()
    assert len({row.name for row in rows}) == len(rows)
    assert {row.model for row in rows} <= set(bench["random_model"].NAMES)
    chosen = bench["native_tier"].chosen
    assert [row.name for row in chosen(rows, "depth", quick=True)] == ["depth/512"]
    assert {row.group for row in chosen(rows, "toy,batch/16-q*", quick=False)} == {"toy", "batch"}


def test_read_bandwidth(bench: dict[str, ModuleType]) -> None:
    assert 0.01 < bench["bandwidth"].read_bandwidth(100_000, 2) < 10_000


def program(folder: Path, name: str, text: str) -> None:
    """A shell script in the peer's place."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_a_row_beside_a_peer(
    bench: dict[str, ModuleType], toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, results = tmp_path / "peer", tmp_path / "results"
    peer.mkdir()
    speeds = 'case "$*" in *"-fa on"*) s=300;; *) s=200;; esac; echo "{\\"samples_ts\\": [$s, $s, $s]}"'
    program(peer, "llama-bench", f'case "$1" in --version) echo "version: 9";; *) {speeds};; esac')
    row = bench["rows"].Row("toy/x", bench["rows"].Kind.DECODE, "toy-q8_0", 2)
    monkeypatch.setattr(bench["native_tier"], "table", lambda: [row])
    monkeypatch.setattr(bench["native_tier"], "CALM", 1.0)  # other tests run beside this one
    given = ["--models", str(tmp_path), "--peer-bin", str(peer), "--out", str(results), "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", ["native_tier.py", *given])
    bench["native_tier"].main()
    (written,) = results.glob("*.json")
    text = written.read_text() + written.with_suffix(".md").read_text()
    (seen,) = json.loads(written.read_text())["rows"]
    (figure,) = seen["figures"]
    assert figure["peer"] == [300.0]
    assert figure["ours"][0] > 0
    assert figure["ratio"] == pytest.approx(figure["ours"][0] / 300, rel=1e-3)
    assert seen["notes"] == ["peer: -fa on"]
    assert "version: 9" in text
    assert set(json.loads(written.read_text())["host"]) == {"before", "after"}
    assert "No result of such a machine" in text
    assert str(tmp_path) not in text
    assert not re.search(rf"\b{re.escape(platform.node())}\b", text)


def test_a_peer_that_fails_leaves_its_cell_empty(bench: dict[str, ModuleType], toy: Path, tmp_path: Path) -> None:
    program(tmp_path, "llama-bench", "echo it broke >&2; exit 3")
    row = bench["rows"].Row("toy/x", bench["rows"].Kind.DECODE, "toy-q8_0", 2)
    peer = bench["peer"].Peer(tmp_path, {}, alone=True)
    result = bench["native_tier"].measure(row, toy, peer, 1, 1, None)
    assert not result.figures
    assert result.notes == ["peer: llama-bench ended with 3: it broke"]


def test_a_peer_that_is_not_there_is_noted(bench: dict[str, ModuleType], toy: Path, tmp_path: Path) -> None:
    row = bench["rows"].Row("toy/x", bench["rows"].Kind.DECODE, "toy-q8_0", 2)
    peer = bench["peer"].Peer(tmp_path / "nowhere", {}, alone=True)
    assert peer.version() is None
    assert bench["native_tier"].measure(row, toy, peer, 1, 1, None).notes == ["peer: llama-bench: FileNotFoundError"]


def test_a_peer_from_a_wheel_is_asked_for_the_row(bench: dict[str, ModuleType], toy: Path, tmp_path: Path) -> None:
    """The Python of its environment is given; this one prints the flash setting and the row in speed's place."""
    program(tmp_path, "python", """echo "$3" | sed 's/.*"n": \\([0-9]*\\).*/{"tokens\\/s": \\1}/'""")
    row = bench["rows"].Row("toy/x", bench["rows"].Kind.PREFILL, "toy-q8_0", 77)
    result = bench["native_tier"].measure(row, toy, bench["peer"].Peer(tmp_path / "python", {}, alone=True), 1, 1, None)
    assert result.figures["tokens/s"].peer == [77.0]


def test_the_last_result_of_such_a_machine(bench: dict[str, ModuleType], tmp_path: Path) -> None:
    machine = {"cpu": "X", "cores": 2, "usable": 2, "flags": ["avx2"]}
    for i, (date, cores) in enumerate((("2026-01-02", 2), ("2026-01-03", 2), ("2026-01-04", 4))):
        tree = {"date": date, "machine": {**machine, "cores": cores}, "rows": []}
        (tmp_path / f"tier-{i}.json").write_text(json.dumps(tree))
    (tmp_path / "tier-broken.json").write_text("{")
    last_result = bench["history"].last_result
    assert last_result(tmp_path, "tier", machine)["date"] == "2026-01-03"
    assert last_result(tmp_path, "tier", {**machine, "flags": []}) is None
    assert last_result(tmp_path, "other", machine) is None


def test_what_fell_is_said_and_counts(bench: dict[str, ModuleType]) -> None:
    def rows(**figures: float | None) -> list[dict[str, object]]:
        known = {"ratio": None, "share_of_bandwidth": None, "unit": "tokens/s", "ours": [10.0]}
        return [{"name": "a/b", "threads": 2, "figures": [{**known, **figures}]}]

    def compared(before: list[dict[str, object]], now: list[dict[str, object]]) -> tuple[list[str], bool]:
        words, lost = bench["history"].compare({"date": "D", "rows": before}, now, 0.1)
        return list(words[1:]), bool(lost)

    assert bench["history"].compare(None, rows(), 0.1)[1] is False
    assert compared(rows(ratio=2.0), rows(ratio=1.81)) == ([], False)
    assert compared(rows(ratio=2.0), rows(ratio=1.5)) == (
        ["- a/b, tokens/s: gain over the peer 1.50, was 2.00: 25% less"],
        True,
    )
    assert compared(rows(ratio=2.0), rows(ratio=3.0))[1] is False
    fell = compared(rows(ratio=2.0, share_of_bandwidth=0.8), rows(share_of_bandwidth=0.4))
    assert fell == (["- a/b, tokens/s: share of the bandwidth 0.40, was 0.80: 50% less"], True)
    assert compared(rows(unit="s", ours=[1.0]), rows(unit="s", ours=[2.0]))[1] is True
    assert compared(rows(unit="s", ours=[2.0]), rows(unit="s", ours=[1.0]))[1] is False


def test_a_model_that_is_not_there_is_made_and_deleted(bench: dict[str, ModuleType], toy: Path) -> None:
    with bench["native_tier"].model_file(toy.parent, "toy-q8_0") as path:
        assert path == toy
    with bench["native_tier"].model_file(None, "toy-q5_1") as path:
        assert path.stat().st_size > 100_000
    assert not path.exists()
    assert toy.exists()


def test_an_option_that_the_engine_lacks_is_noted(bench: dict[str, ModuleType], toy: Path) -> None:
    row = bench["rows"].Row("toy/x", bench["rows"].Kind.DECODE, "toy-q8_0", 2, level="no-such-level")
    result = bench["native_tier"].measure(row, toy, bench["peer"].Peer(None, {}), 1, 1, None)
    assert not result.figures
    assert len(result.notes) == 1
    assert result.notes[0].startswith("ours: ")
