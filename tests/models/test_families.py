"""Every family against float64 formulas written without the package, and its backends against one another."""

from __future__ import annotations

from functools import cache
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from amdgpu_emu.core.core import ShaderCore
from tests.amdgpu.queue.stage import machine
from tests.helpers import T, engine_for, logits_of, random_tokens, run_tokens
from tests.models.families import CASES, FAMILIES, KINDS, ON_THE_CPU, soon
from tests.models.families.build import N_VOCAB, Made, write_case
from tests.models.families.common import Net
from tests.models.families.qwen_moe import wide
from tests.models.test_logits import quietest_row
from tests.models.truth import error
from zinc_rt.backends.select import Kernels
from zinc_rt.engine.engine import Device, Engine, SequenceChunk
from zinc_rt.gguf import GGMLType, GGUFFile
from zinc_rt.models import define

LONG = ("gemma3", "qwen35")
LONG_TEXT = random_tokens(6, 264, N_VOCAB - 2)

# A weight or product in float32 is off by 6e-8 of itself; a few hundred of them on the way to a logit by some 5e-7. One
# key or value that float16 rounds the other way is off by 5e-4 of itself, one among thousands: hence a looser bound for
# the whole than for the best row. What is done wrongly is off by 0.03 at the least.
WHOLE, ROW, NOTICED = 1e-3, 2e-6, 0.03
# Activations that int8 rounds the other way are off by 1 / 127 of their group's largest.
WHOLE_INT8 = 1e-2


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("families")


@cache
def made(folder: Path, name: str, weights: GGMLType = T.F32) -> Made:
    return write_case(folder / f"{name}-{weights.name}.gguf", CASES[name], weights)


def text_of(case: Made) -> list[int]:
    return random_tokens(5, case.case.n_tokens, N_VOCAB - 2)


@cache
def reference(path: Path, tokens: tuple[int, ...]) -> np.ndarray:
    return logits_of(path, list(tokens), n_ctx=512, kernels="reference")


def bits(x: np.ndarray) -> np.ndarray:
    return x.view(np.uint32)


@cache
def asked_for(path: Path) -> set[object]:
    """The operations of a model, each with what it is told and how many inputs it has; of a number, whether it is 0."""
    with GGUFFile.open(path) as file:
        nodes = define(file).graph.nodes
    told = [frozenset((k, v if isinstance(v, str | bool) else v != 0) for k, v in n.attrs.items()) for n in nodes]
    return {(node.op.name, what, len(node.inputs)) for node, what in zip(nodes, told)}


@cache
def asked_by_kinds(folder: Path) -> frozenset[object]:
    return frozenset().union(*(asked_for(made(folder, name).path) for name in KINDS))


@pytest.mark.parametrize("name", soon(FAMILIES))
def test_the_formulas_notice(name: str, folder: Path) -> None:
    """One thing done wrongly is far outside the tolerance, and the choice of experts hangs on no rounding.

    A test of the formulas, which change seldom: by default of one case of each kind of layers.
    """
    case = made(folder, name)
    right = Net(case)
    want = right.logits(text_of(case))
    assert want.std() > 0.5  # logits that say something
    assert right.closest_choice > 5e-4
    assert case.case.wrong
    for what in case.case.wrong:
        net = Net(case, wrong=[what])
        assert error(net.logits(text_of(case)), want) > NOTICED, what
        assert not net.unasked(), what


@pytest.mark.parametrize("name", CASES)
def test_logits(name: str, folder: Path) -> None:
    """They are the formulas'; and whatever the case asks for, a kind asks for it, too."""
    case = made(folder, name)
    new = asked_for(case.path) - asked_by_kinds(folder)
    assert new == set(), "a new kind: add it to KINDS in tests/models/families"
    got, want = reference(case.path, tuple(text_of(case))), Net(case).logits(text_of(case))
    assert error(got, want) < WHOLE
    assert quietest_row(got, want) < ROW


MIXED: dict[str, tuple[str, dict[str, str]]] = {
    "qwen3moe": ("Q8_0", {"_exps": "Q4_0"}),
    "gpt-oss": ("Q8_0", {"_exps": "MXFP4"}),
    "qwen35moe": ("Q5_0", {"gate_exps": "IQ4_NL", "up_exps": "IQ4_NL", "_exps": "Q5_1", "shexp": "Q8_0", "ssm": "F16"}),
    "wide": ("Q4_K", {"down_exps": "Q6_K", "attn_v": "Q6_K", "output.weight": "Q6_K", "token_embd": "Q5_K"}),
    "wide-low": ("Q3_K", {"down_exps": "IQ4_XS", "attn": "Q2_K", "output.weight": "Q6_K"}),
}
"""Formats of matrices, and other ones by a part of the name, as downloaded files mix them."""


def mixed_model(name: str, tmp_path: Path) -> Made:
    case = wide() if name.startswith("wide") else CASES[name]
    weights, others = MIXED[name]
    made = write_case(tmp_path / "model.gguf", case, T[weights], {part: T[kind] for part, kind in others.items()})
    assert {T[weights], *(T[kind] for kind in others.values())} <= set(made.formats.values())
    return made


@pytest.mark.parametrize("name", MIXED)
def test_mixed_formats(name: str, tmp_path: Path) -> None:
    mixed = mixed_model(name, tmp_path)
    tokens = text_of(mixed)
    got, want = logits_of(mixed.path, tokens, kernels="reference"), Net(mixed).logits(tokens)
    assert error(got, want) < WHOLE_INT8
    assert quietest_row(got, want) < ROW


@pytest.mark.slow
@pytest.mark.parametrize("name", MIXED)
def test_mixed_formats_on_the_cpu(name: str, tmp_path: Path) -> None:
    path, tokens = mixed_model(name, tmp_path).path, random_tokens(5, 12, N_VOCAB - 2)
    want = bits(logits_of(path, tokens, kernels="reference"))
    with engine_for(path, n_batch=11) as engine:  # several rows an expert, then one
        np.testing.assert_array_equal(bits(run_tokens(engine, engine.open_sequence(), tokens, 11)), want)


def long_logits(made: Made, chunk: int, kernels: Kernels = "native") -> np.ndarray:
    with engine_for(made.path, n_batch=chunk, n_ctx=512, kernels=kernels) as engine:
        return run_tokens(engine, engine.open_sequence(), LONG_TEXT, chunk)


@pytest.mark.parametrize("name", soon(LONG[:1], LONG))
def test_a_long_text(name: str, folder: Path) -> None:
    """More than 256 positions: some parts of the past are cut off by a window wholly, others in the middle."""
    case = made(folder, name)
    got = long_logits(case, 140)
    assert error(got, Net(case).logits(LONG_TEXT)) < WHOLE
    np.testing.assert_array_equal(bits(got), bits(long_logits(case, len(LONG_TEXT))))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_long_text_with_the_references_kernels(name: str, folder: Path) -> None:
    case = made(folder, name)
    np.testing.assert_array_equal(bits(long_logits(case, len(LONG_TEXT), "reference")), bits(long_logits(case, 140)))


@pytest.mark.parametrize("name", soon(FAMILIES))
def test_quantised_logits(name: str, folder: Path) -> None:
    case = made(folder, name, T.Q8_0)
    tokens = text_of(case)
    got, want = logits_of(case.path, tokens, n_ctx=512, kernels="reference"), Net(case).logits(tokens)
    assert error(got, want) < WHOLE_INT8
    assert quietest_row(got, want) < ROW


IN_PIECES = ("qwen35", "gemma4", "lfm2", "deepseek2", "mamba2", "kimi-linear", "qwen4exp", "deepseek4")
"""Windows, caches of several layers, and each kind of state that a step leaves for the next one."""


@pytest.mark.parametrize("name", soon(IN_PIECES))
def test_pieces_of_a_text(name: str, folder: Path) -> None:
    """The reference's bits do not depend on how a text is cut into steps: of one row, and of several."""
    case = made(folder, name)
    tokens, at, got = text_of(case), 0, []
    with engine_for(case.path, n_batch=8, kernels="reference", n_ctx=512) as engine:
        slot = engine.open_sequence()
        for n in cycle((1, 7, 1, 2)):
            got.append(run_tokens(engine, slot, tokens[at : at + n], n, start=at))
            at += n
            if at >= len(tokens):
                break
    np.testing.assert_array_equal(bits(np.concatenate(got)), bits(reference(case.path, tuple(tokens))))


@pytest.mark.parametrize("name", soon(FAMILIES))
def test_steps_without_rows_or_without_logits(name: str, folder: Path) -> None:
    """They change nothing: the text goes on with the same bits."""
    case = made(folder, name)
    tokens = text_of(case)[:8]
    with engine_for(case.path, n_batch=8, kernels="reference", n_ctx=512) as engine:
        slot, lowered = engine.open_sequence(), engine._loaded()
        assert engine.step([SequenceChunk(slot, 0, tokens[:4])]).logits.shape == (0, N_VOCAB)
        lowered.counts[:] = 0, 0
        engine._backend.submit_and_wait(lowered)
        got = engine.step([SequenceChunk(slot, 4, tokens[4:], logits_indices=range(4))]).logits
    np.testing.assert_array_equal(bits(got), bits(reference(case.path, tuple(text_of(case))))[4:8])


@pytest.mark.parametrize("name", soon(ON_THE_CPU))
def test_cpu(name: str, folder: Path) -> None:
    """The CPU's kernels give the reference's bits: in pieces, at once, beside another text, in a slot used before."""
    case = made(folder, name)
    tokens = text_of(case)
    want = bits(reference(case.path, tuple(tokens)))
    with engine_for(case.path, n_batch=len(tokens), n_slots=2, n_ctx=512) as engine:
        for chunk in (7, len(tokens)):
            slot = engine.open_sequence()
            np.testing.assert_array_equal(bits(run_tokens(engine, slot, tokens, chunk)), want)
            engine.close_sequence(slot)
        np.testing.assert_array_equal(bits(beside_another(engine, tokens)), want)


def beside_another(engine: Engine, tokens: list[int]) -> np.ndarray:
    """Logits of the text, with rows of another one before and after its own in each step."""
    slot, other = engine.open_sequence(), engine.open_sequence()
    others, out, done = tokens[::-1], [], 0
    for i in range(0, len(tokens), 4):
        part = tokens[i : i + 4]
        beside = [SequenceChunk(other, done + j, others[done + j : done + j + 1]) for j in range(2)]
        rows = [beside[0], SequenceChunk(slot, i, part, logits_indices=range(len(part))), beside[1]]
        out.append(engine.step(rows).logits.copy())
        done += 2
    return np.concatenate(out)


@pytest.mark.slow  # takes seconds for a model; `tests/backends/amdgpu` has each kind of layer, and whole models
@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("patience")
def test_gpu(name: str, folder: Path) -> None:
    """The emulated GPU gives the reference's bits: a prompt, then single rows."""
    case = made(folder, name)
    tokens = text_of(case)[:5]
    with machine(shader=ShaderCore(), time_scale=100.0) as on:
        options = {"device": Device.gpu_kfd, "n_ctx": 512, "n_batch": 3}
        with engine_for(case.path, linux=on.process(), **options) as engine:
            slot = engine.open_sequence()
            got = np.concatenate([run_tokens(engine, slot, tokens[:3], 3), run_tokens(engine, slot, tokens[3:], 1, 3)])
    np.testing.assert_array_equal(bits(got), bits(reference(case.path, tuple(text_of(case)))[:5]))
