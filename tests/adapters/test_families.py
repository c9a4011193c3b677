"""Adapters on every kind of layer: against float64 formulas with merged weights, and backends against one another."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.adapters.files import write_adapter
from tests.helpers import T, random_tokens
from tests.models.families import ARCHITECTURES, CASES, FAMILIES, soon
from tests.models.families.build import N_VOCAB, write_case
from tests.models.families.common import Net
from tests.models.truth import error
from zinc_rt.adapters.slots import AdapterRequest, AdapterSlots, AdapterUse
from zinc_rt.adapters.targets import part_of, targets
from zinc_rt.engine.engine import Device, Engine, Options, SequenceChunk
from zinc_rt.gguf import GGUFFile
from zinc_rt.models import define

USE = (AdapterUse(0, 1.0),)
SOON = ("qwen3moe", "qwen35", "gemma4", "lfm2", "deepseek2", "deepseek4")
"""Kinds of matrices that adapters change; `test_adapters.py` has dense layers. The others are slow tests."""
GPU_SOON: set[str] = set()


def adapted_tensors(path: Path) -> dict[str, tuple[int, ...]]:
    """The matrices that adapters can change, but for an embedding that is the head, too."""
    with GGUFFile.open(path) as file:
        definition = define(file)
        found = [part_of(definition, file, target.weight) for target in targets(definition.graph)]
        names = {part.tensor for part in found if part is not None} - {"per_layer_token_embd.weight"}
        if "output.weight" not in names:
            names.discard("token_embd.weight")
        return {name: file.tensors[name].shape for name in names if len(file.tensors[name].shape) > 1}


def logits(path: Path, adapter: Path, tokens: list[int], beside: list[int], **options: object) -> np.ndarray:
    """After each token, with an adapter, beside a text without any; as bits."""
    with GGUFFile.open(path) as file, Engine(Options(n_ctx=128, n_slots=2, **options)) as engine:  # type: ignore[arg-type]
        slots = AdapterSlots.make(define(file), file, [AdapterRequest(adapter)])
        engine.load(file, slots.definition)
        sequences = [engine.open_sequence(salt=None) for _ in range(2)]
        chunks = [SequenceChunk(sequences[0], 0, beside), SequenceChunk(sequences[1], 0, tokens, range(len(tokens)))]
        chunks[1].adapters = USE
        return engine.step(chunks).logits.view(np.uint32).copy()


def rewritten(tensors: Mapping[str, np.ndarray], added: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: values + added.get(name, 0.0) for name, values in tensors.items()}


@pytest.mark.parametrize("name", soon(SOON, ARCHITECTURES))
def test_it_is_as_if_merged(name: str, tmp_path: Path) -> None:
    made = write_case(tmp_path / "model.gguf", CASES[name], T.F32)
    shapes = adapted_tensors(made.path)
    assert shapes
    added = write_adapter(tmp_path / "a.gguf", made.case.architecture, shapes, ("",), rank=5, size=0.15)
    tokens, beside = random_tokens(5, 12, N_VOCAB - 2), random_tokens(6, 5, N_VOCAB - 2)
    got = logits(made.path, tmp_path / "a.gguf", tokens, beside, kernels="reference")
    want = Net(dataclasses.replace(made, tensors=rewritten(made.tensors, added))).logits(tokens)
    without = Net(made).logits(tokens)
    assert error(got.view(np.float32), want) < 1e-3
    assert error(without, want) > 0.01


@pytest.mark.slow  # `tests/kernels/test_adapters.py` has the kernels, `test_adapters.py` a whole model
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_cpu(name: str, tmp_path: Path) -> None:
    """The CPU's kernels give the reference's bits."""
    made = write_case(tmp_path / "model.gguf", CASES[name], T.F32)
    write_adapter(tmp_path / "a.gguf", made.case.architecture, adapted_tensors(made.path), ("",), rank=5, size=0.15)
    tokens, beside = random_tokens(5, 12, N_VOCAB - 2), random_tokens(6, 5, N_VOCAB - 2)
    want = logits(made.path, tmp_path / "a.gguf", tokens, beside, kernels="reference")
    assert (logits(made.path, tmp_path / "a.gguf", tokens, beside) == want).all()


@pytest.mark.parametrize("name", soon(GPU_SOON, FAMILIES))
def test_an_emulated_gpu(name: str, tmp_path: Path) -> None:
    made = write_case(tmp_path / "model.gguf", CASES[name], T.Q8_0)
    write_adapter(tmp_path / "a.gguf", made.case.architecture, adapted_tensors(made.path), ("",), rank=5, size=0.1)
    tokens, beside = random_tokens(5, 3, N_VOCAB - 2), random_tokens(6, 2, N_VOCAB - 2)
    want = logits(made.path, tmp_path / "a.gguf", tokens, beside, kernels="reference")
    assert (logits(made.path, tmp_path / "a.gguf", tokens, beside, device=Device.emu, n_batch=8) == want).all()
