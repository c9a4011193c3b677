"""Blocks that draft, as graphs beside the model's: against float64 formulas, and what they share with the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import T, logits_of, random_tokens, soon
from tests.models.families import CASES
from tests.models.families.build import N_VOCAB, Case, Made, write_case
from tests.models.families.common import Net
from tests.models.families.drafting import WRONG, head, with_block
from tests.models.truth import error
from zinc_rt.engine.engine import Device, Engine, EngineError, Options, SequenceChunk
from zinc_rt.errors import BackendError
from zinc_rt.gguf import GGMLType, GGUFFile
from zinc_rt.models import define, define_draft_head
from zinc_rt.models.errors import ModelError
from zinc_rt.models.hidden import hidden_beside
from zinc_rt.models.parts import GraphParts
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.request import SamplingRequest
from zinc_rt.sampling.sampler import Sampler
from zinc_rt.speculation.draft_head import DraftHead, HeadRows

MODELS: dict[str, Case] = {
    "qwen35": CASES["qwen35-mtp"],
    "qwen35moe": with_block(CASES["qwen35moe"]),
    "qwen35-own": with_block(CASES["qwen35"], own=True),
    "qwen3next": with_block(CASES["qwen3next"]),
    "glm4": with_block(CASES["glm4"]),
    "glm4moe": CASES["glm4moe-mtp"],
    "deepseek2": with_block(CASES["deepseek2"]),
    "mimo2": with_block(CASES["mimo2"]),
    "step35": with_block(CASES["step35"]),
    "deepseek32": with_block(CASES["deepseek32"]),
    "glm-dsa": with_block(CASES["glm-dsa"]),
    "bailingmoe2": CASES["bailingmoe2"],
    "bailingmoe3": with_block(CASES["bailingmoe3-limits"], like=[1], norm="layer_output_norm"),
    "nemotron_h_moe": with_block(CASES["nemotron_h_moe-latent"], like=[2, 4], more=["post_attention_norm"]),
}
LEFT_OUT = {name: with_block(CASES[name]) for name in ("exaone-moe", "exaone4-windows")}
"""Models whose block is known and not run."""
TOKENS = random_tokens(3, 21, N_VOCAB - 2)
RIGHT, NOTICED = 2e-3, 0.03


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("drafting")


@cache
def made(folder: Path, name: str, weights: GGMLType = T.F32) -> Made:
    return write_case(folder / f"{name}-{weights.name}.gguf", MODELS[name], weights)


@contextmanager
def opened(path: Path, **options: Any) -> Iterator[tuple[Engine, DraftHead]]:
    options = {"n_ctx": 64, "n_batch": 32, "kernels": "reference", **options}
    with GGUFFile.open(path) as file, Engine(Options(**options)) as engine:
        engine.load(file, hidden_beside(define(file)))
        found = define_draft_head(file)
        assert found is not None
        yield engine, DraftHead(engine, file, found, 8)


def run(engine: Engine, head: DraftHead, cuts: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hidden states of the model, and of the head hidden states and logits of rows that end a cut."""
    slot = engine.open_sequence()
    engine.step([SequenceChunk(slot, 0, TOKENS)])
    hidden = head.hidden(len(TOKENS)).copy()
    prior = np.concatenate([np.zeros_like(hidden[:1]), hidden[:-1]])
    states, logits = [], []
    for start, end in zip([0, *cuts], [*cuts, len(TOKENS)], strict=True):
        asked = SamplingRequest(Sampler(SamplingParams(temperature=0.0), N_VOCAB), TOKENS[:end])
        rows = HeadRows(slot, start, TOKENS[start:end], prior[start:end], wanted=True)
        step = head.step([rows], [len(TOKENS)], [asked])
        assert step.chosen.token().token_id == int(step.chosen.logits[0].argmax())
        states.append(step.hidden)
        logits.append(step.chosen.logits.copy())
    return hidden, np.concatenate(states), np.concatenate(logits)


KINDS = ("qwen35", "qwen35-own", "qwen3next", "deepseek32", "step35", "bailingmoe3")


@pytest.mark.parametrize("name", soon(KINDS, MODELS))
def test_formulas(name: str, folder: Path) -> None:
    case, cuts = made(folder, name), [5, 17, 18, 20]
    with opened(case.path) as (engine, drafting):
        hidden, states, logits = run(engine, drafting, cuts)
    prior = np.concatenate([np.zeros_like(hidden[:1]), hidden[:-1]]).astype(np.float64)
    rows = [end - 1 for end in (*cuts, len(TOKENS))]
    right = Net(case)
    h, want = head(right, TOKENS, prior)
    assert error(states, h[rows]) < RIGHT
    assert error(logits, want[rows]) < RIGHT
    for what in WRONG:
        net = Net(case, wrong=[what])
        if name.endswith("-own") and what == "head norm":  # it has none
            continue
        h, want = head(net, TOKENS, prior)
        assert max(error(states, h[rows]), error(logits, want[rows])) > NOTICED, what
        assert not net.unasked(), what


def bits(x: np.ndarray) -> np.ndarray:
    return x.view(np.uint32)


@pytest.mark.parametrize(
    ("device", "name", "weights"),
    [
        (Device.cpu, "qwen35", "F32"),
        pytest.param(Device.cpu, "glm4moe", "Q8_0", marks=pytest.mark.slow),
        pytest.param(Device.cpu, "deepseek2", "Q8_0", marks=pytest.mark.slow),
        pytest.param(Device.cpu, "bailingmoe3", "Q8_0", marks=pytest.mark.slow),
        pytest.param(Device.cpu, "nemotron_h_moe", "Q8_0", marks=pytest.mark.slow),
        pytest.param(Device.emu, "qwen35", "Q8_0", marks=pytest.mark.slow),
        pytest.param(Device.emu, "nemotron_h_moe", "F32", marks=pytest.mark.slow),
        pytest.param(Device.emu, "glm4moe", "F32", marks=pytest.mark.slow),
    ],
)
def test_the_same_bits_on_every_device(device: Device, name: str, weights: str, folder: Path) -> None:
    path, got = made(folder, name, T[weights]).path, []
    for options in ({}, {"device": device, "kernels": "native"}):
        with opened(path, **options) as (engine, drafting):
            got.append(run(engine, drafting, [15, 20]))
    for a, b in zip(*got, strict=True):
        np.testing.assert_array_equal(bits(a), bits(b))


def test_nothing_else_changes_in_the_model(folder: Path) -> None:
    """Its logits have the same bits, and its matrices are in memory once."""
    case = made(folder, "qwen35")
    with GGUFFile.open(case.path) as file:
        definition = define(file)
        assert hidden_beside(hidden_beside(definition)).graph == hidden_beside(definition).graph
        with Engine(Options(n_ctx=64, kernels="reference")) as plain:
            plain.load(file, definition)
            want = plain.step([SequenceChunk(plain.open_sequence(), 0, TOKENS, range(21))]).logits.copy()
            found = define_draft_head(file)
            assert found is not None
            with pytest.raises(EngineError, match="no hidden states"):
                DraftHead(plain, file, found, 8)
    with opened(case.path) as (engine, drafting):
        np.testing.assert_array_equal(
            bits(engine.step([SequenceChunk(engine.open_sequence(), 0, TOKENS, range(21))]).logits), bits(want)
        )
        backend, model = engine.backend, engine.lowered
        alone, shared = (backend.plan(found.graph, drafting.sizes, each).n_bytes for each in (None, model))
        assert engine.plan is not None
        assert drafting.plan.main_model == engine.plan.total > 0
        assert (drafting.plan.available, drafting.plan.snapshots) == (engine.plan.available, 0)
        assert alone["weights"] - shared["weights"] == 4 * 2 * N_VOCAB * 64
        assert alone["kv_cache"] == shared["kv_cache"] == drafting.sizes.n_pages * 16 * 2 * 2 * 2 * 24


def test_a_name_for_two_things_is_refused(folder: Path) -> None:
    """The other model's block has a projection of the same name, and other heads."""
    with opened(made(folder, "qwen35").path) as (engine, drafting), GGUFFile.open(made(folder, "glm4moe").path) as file:
        backend, model = engine.backend, engine.lowered
        with pytest.raises(BackendError, match=r"weight blk\.2\.attn_k\.weight is f32\[32, 64\], but f32\[48, 64\]"):
            backend.plan(define(file).graph, drafting.sizes, model)


def test_parts_of_blocks_are_refused(folder: Path) -> None:
    with GGUFFile.open(made(folder, "qwen35", T.Q8_0).path) as file:
        parts = GraphParts(file, define(file).info, 1e-6)
        with pytest.raises(ModelError, match=r"eh_proj.* cut into 8: 16 elements are no whole .* of 32"):
            parts.weight_columns("blk.3.nextn.eh_proj.weight", (64, 128), 0, 8)


@pytest.mark.parametrize("name", soon(("exaone-moe", "bailingmoe3"), [*LEFT_OUT, "bailingmoe3", "glm4", "glm-dsa"]))
def test_a_block_that_is_left_out(name: str, folder: Path) -> None:
    """The model's logits are those of the formulas, with a block that is known behind its own."""
    case = write_case(folder / f"{name}-left.gguf", LEFT_OUT.get(name) or MODELS[name])
    with GGUFFile.open(case.path) as file:
        assert (define_draft_head(file) is None) is (name in LEFT_OUT)
    assert error(logits_of(case.path, TOKENS, kernels="reference"), Net(case).logits(TOKENS)) < RIGHT


@pytest.mark.parametrize("name", ["qwen35", "glm4moe", "qwen3"])
def test_without_a_block(name: str, folder: Path) -> None:
    with GGUFFile.open(write_case(folder / "none.gguf", CASES[name]).path) as file:
        assert define_draft_head(file) is None
