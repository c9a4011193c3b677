"""The small model that drafts for Gemma 4: against float64 formulas, and files that do not belong together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import T, random_tokens
from tests.models.families import CASES, gemma4
from tests.models.families import gemma4_assistant as small
from tests.models.families.build import N_VOCAB, Case, Made, write_case
from tests.models.families.common import Net
from tests.models.truth import error
from zinc_rt.engine.engine import Device, Engine, Options, SequenceChunk
from zinc_rt.gguf import GGMLType, GGUFFile
from zinc_rt.models import define, define_assistant
from zinc_rt.models.errors import ModelError
from zinc_rt.models.hidden import hidden_beside
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.request import SamplingRequest
from zinc_rt.sampling.sampler import Sampler
from zinc_rt.speculation.draft_head import Assistant, HeadRows

TOKENS = random_tokens(3, 29, N_VOCAB - 2)
NOTICED = 0.03


MODELS = {name: CASES[name] for name in ("gemma4", "gemma4-experts")}
MODELS["wide"] = gemma4.case(experts=False, inputs=False, d_local=32)
"""Its heads are whole blocks of q8_0."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("assistants")


@cache
def made(folder: Path, name: str, weights: GGMLType = T.F32) -> tuple[Made, Made]:
    """The large model, and the one that drafts for it."""
    path = folder / f"{name}-{weights.name}.gguf"
    large = write_case(path, MODELS[name], weights)
    return large, write_case(path.with_suffix(".assistant.gguf"), small.case(MODELS[name]), weights)


@contextmanager
def opened(large: Made, own: Made, **options: Any) -> Iterator[tuple[Engine, Assistant]]:
    options = {"n_ctx": 64, "n_batch": 32, "kernels": "reference", **options}
    with GGUFFile.open(large.path) as file, GGUFFile.open(own.path) as other, Engine(Options(**options)) as engine:
        engine.load(file, hidden_beside(define(file)))
        yield engine, Assistant(engine, file, other, define_assistant(other, file, define(file).info), 4)


def run(engine: Engine, assistant: Assistant) -> tuple[np.ndarray, list[tuple[int, np.ndarray, np.ndarray]]]:
    """The model's hidden states, and two rows of a draft: token, hidden state and logits."""
    slot, n = engine.open_sequence(), len(TOKENS) - 1
    engine.step([SequenceChunk(slot, 0, TOKENS[:-1])])
    hidden, out, token = assistant.hidden(n).copy(), [], TOKENS[-1]
    prior = hidden[-1:]
    for _ in range(2):
        asked = SamplingRequest(Sampler(SamplingParams(temperature=0.0), N_VOCAB), TOKENS)
        step = assistant.step([HeadRows(slot, n, [token], prior, wanted=True)], [n], [asked])
        out.append((token, step.hidden[0].copy(), step.chosen.logits[0].copy()))
        token, prior = step.chosen.token().token_id, step.hidden
        assert token == int(out[-1][2].argmax())
    return hidden, out


@pytest.mark.parametrize("name", ["gemma4", "gemma4-experts"])
def test_formulas(name: str, folder: Path) -> None:
    large, own = made(folder, name)
    with opened(large, own) as (engine, assistant):
        hidden, rows = run(engine, assistant)
    net = Net(large)
    model = small.Model(net, gemma4.hidden_and_caches(net, TOKENS[:-1])[1])

    def difference(net: Net) -> float:
        prior, worst = hidden[-1].astype(np.float64), 0.0
        for token, state, logits in rows:
            want_state, want = small.row(net, model, token, prior, len(TOKENS) - 1)
            worst, prior = max(worst, error(state, want_state), error(logits, want)), state.astype(np.float64)
        return worst

    assert difference(Net(own)) < 1e-3
    for what in small.WRONG:
        wrong = Net(own, wrong=[what])
        assert difference(wrong) > NOTICED, what
        assert not wrong.unasked(), what


def bits_on(folder: Path, weights: GGMLType, **options: Any) -> np.ndarray:
    """States and logits of a draft on a device."""
    with opened(*made(folder, "wide", weights), **options) as (engine, assistant):
        return np.concatenate([part for _, *row in run(engine, assistant)[1] for part in row]).view(np.uint32)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "kv", "weights"),
    [(Device.cpu, "f16", "F32"), (Device.cpu, "q8_0", "Q8_0"), (Device.emu, "f16", "F32"), (Device.emu, "q8_0", "F32")],
)
def test_the_same_bits_on_every_device(device: Device, kv: str, weights: str, folder: Path) -> None:
    kind = T[weights]
    want = bits_on(folder, kind, kv=kv)
    np.testing.assert_array_equal(bits_on(folder, kind, kv=kv, device=device, kernels="native"), want)


def refused(folder: Path, large: Case, own: Case) -> None:
    with (
        GGUFFile.open(write_case(folder / "large.gguf", large).path) as file,
        GGUFFile.open(write_case(folder / "own.gguf", own).path) as other,
    ):
        define_assistant(other, file, define(file).info)


def test_files_that_do_not_belong_together(folder: Path) -> None:
    model = CASES["gemma4"]
    own = small.case(model)

    def with_key(name: str, value: Any) -> Case:
        return replace(own, keys={**own.keys, name: value})

    with pytest.raises(ModelError, match=r"another model: .*embedding_length_out is 96, of this one 64"):
        refused(folder, model, with_key("embedding_length_out", 96))
    with pytest.raises(ModelError, match=r"heads of 48 elements cannot read the model's block 4, of 16"):
        refused(
            folder,
            model,
            replace(
                own, keys={**own.keys, **dict.fromkeys(("attention.key_length_swa", "attention.value_length_swa"), 48)}
            ),
        )
    with pytest.raises(ModelError, match=r"drafts for gemma4 models, not for architecture 'qwen3'"):
        refused(folder, CASES["qwen3"], own)
    with pytest.raises(ModelError, match=r"is of architecture 'qwen3'; what drafts from another"):
        refused(folder, model, CASES["qwen3"])
    message, path = r"none by itself; run that with --spec mtp -md FILE", write_case(folder / "own.gguf", own).path
    with GGUFFile.open(path) as file, pytest.raises(ModelError, match=message):
        define(file)
