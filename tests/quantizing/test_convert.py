"""The new file: what it holds, what it takes over, and that nothing half done is left."""

from __future__ import annotations

import errno
import threading
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.gguf.parts import split
from tests.helpers import LLAMA, QWEN3, T, logits_of, random_tokens, soon, write_model
from tests.models.families import CASES
from tests.models.families.build import write_case
from tests.models.truth import error
from tests.quantizing.test_rows import LARGEST_LOSS
from zinc_rt.gguf import GGMLType, GGUFFile, GGUFWriter, ValueType, blocks
from zinc_rt.gguf.errors import GGUFError, InvalidBlocks
from zinc_rt.quantizing.convert import Conversion
from zinc_rt.quantizing.errors import QuantizeError
from zinc_rt.quantizing.plan import Planner
from zinc_rt.quantizing.presets import PRESETS, preset_of

WIDE = replace(QWEN3, n_embd=256, n_ff=256, head_dim=64)
TOKENS = random_tokens(3, 24, WIDE.n_vocab)
ROUNDED = {T.F32: 0.0, T.F16: 0.0003, T.BF16: 0.0018, **LARGEST_LOSS}
"""Relative error of a weight."""


def largest_error(name: str) -> float:
    """Of the logits, relative. Their 15 matrices lose independently of each other, which makes about four times the
    error of one; logits that have nothing to do with the right ones are off by 1.4. Few values a weight leave
    little of a model that was not trained with them.
    """
    loss = ROUNDED[PRESETS[name].base]
    return min(6 * loss, 0.9 if loss < 0.3 else 1.3)


@pytest.fixture(scope="module")
def floats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("floats") / "tiny.gguf", WIDE).path


@pytest.fixture(scope="module")
def wanted(floats: Path) -> np.ndarray:
    return logits_of(floats, TOKENS, kernels="reference")


def convert(source: Path, out: Path, preset: str, threads: int = 2) -> Conversion:
    with GGUFFile.open(source) as file:
        work = Conversion(file, out, preset_of(preset), Planner(file, preset_of(preset)).choices())
        work.check_target()
        assert work.write(threads=threads) == work.size == out.stat().st_size
    return work


NEAR_SOON = ("F16", "Q8_0", "Q5_K_M", "Q4_K_M", "Q4_0", "IQ4_XS", "Q3_K_M", "Q2_K", "MXFP4_MOE")
"""One of each kind of format and of mixture; `test_plan.py` plans them all."""


@pytest.mark.parametrize("name", soon(NEAR_SOON, PRESETS))
def test_logits_stay_near(name: str, floats: Path, wanted: np.ndarray, tmp_path: Path) -> None:
    work = convert(floats, tmp_path / "q.gguf", name)
    got = logits_of(work.out, TOKENS, kernels="reference")
    assert error(got, wanted) <= largest_error(name)
    with GGUFFile.open(work.out) as file:
        assert file.metadata["general.file_type"] == PRESETS[name].file_type
        assert file.metadata["general.quantization_version"] == 2
        assert {t.name: t.type for t in file.tensors.values()} == {c.tensor.name: c.type for c in work.choices}


@pytest.mark.slow  # `tests/backends/cpu/test_whole_models.py` has such a model
def test_native_kernels_give_the_same_bits(floats: Path, tmp_path: Path) -> None:
    convert(floats, tmp_path / "q.gguf", "Q4_K_M")
    both = [logits_of(tmp_path / "q.gguf", TOKENS, kernels=kernels) for kernels in ("reference", "native")]
    np.testing.assert_array_equal(both[0].view(np.uint32), both[1].view(np.uint32))


def test_experts_and_kept_tensors(tmp_path: Path) -> None:
    source = write_case(tmp_path / "m.gguf", CASES["qwen3moe"]).path
    work = convert(source, tmp_path / "q.gguf", "MXFP4_MOE")
    types = {c.kind: c.type for c in work.choices}
    assert types["ffn_up_exps"] is T.MXFP4
    assert types["ffn_gate_inp"] is T.F32
    with GGUFFile.open(source) as before, GGUFFile.open(work.out) as after:
        for choice in work.choices:
            raw, made = before.raw(choice.tensor.name), after.raw(choice.tensor.name)
            if choice.copied:
                np.testing.assert_array_equal(raw, made)
            else:
                loss = work.losses[choice.kind, choice.type.name]
                assert 0 < loss.relative < 0.2
                assert made.shape == (len(raw), choice.type.row_bytes(choice.tensor.shape[-1]))
    tokens = random_tokens(5, 16, 50)
    assert error(*(logits_of(p, tokens, kernels="reference") for p in (work.out, source))) < 0.4


@pytest.mark.parametrize(
    "name", soon(("qwen35moe", "deepseek2"), ("qwen35moe", "gemma4", "gpt-oss", "lfm2", "deepseek2"))
)
def test_other_architectures_run(name: str, tmp_path: Path) -> None:
    """Nothing becomes Q8_0 that has to be plain numbers."""
    source = write_case(tmp_path / "m.gguf", CASES[name]).path
    work = convert(source, tmp_path / "q.gguf", "Q8_0")
    tokens = random_tokens(5, 16, 50)
    assert error(*(logits_of(p, tokens, kernels="reference") for p in (work.out, source))) < 0.3


def test_the_oracle_reads_the_file_and_its_losses(floats: Path, tmp_path: Path) -> None:
    work = convert(floats, tmp_path / "q.gguf", "Q4_K_M")
    values = {t.name: np.array(t.data) for t in gguf.GGUFReader(floats).tensors}
    sums = {key: [0.0, 0.0] for key in work.losses}
    for t in gguf.GGUFReader(work.out).tensors:
        made = gguf.quants.dequantize(t.data, t.tensor_type).reshape(values[t.name].shape)
        choice = next(c for c in work.choices if c.tensor.name == t.name)
        if not choice.copied:
            s = sums[choice.kind, choice.type.name]
            s[0] += np.square(made - values[t.name], dtype=np.float64).sum()
            s[1] += np.square(values[t.name], dtype=np.float64).sum()
    for key, (lost, squares) in sums.items():
        assert work.losses[key].relative == pytest.approx((lost / squares) ** 0.5, rel=1e-4)


def test_metadata_and_alignment_are_taken_over(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "m.gguf", alignment=128)
    writer.add("general.architecture", "llama")
    writer.add("general.file_type", 1, ValueType.UINT32)
    writer.add("some.words", ["a", "\u00e9", ""])
    writer.add("some.lists", [[1, 2], [3]], ValueType.INT16)
    writer.add("some.flag", True)
    writer.add("some.numbers", np.arange(5, dtype=np.float64))
    writer.add_tensor("a.weight", np.ones((2, 32), np.float32), T.F32, (2, 32))
    writer.add_tensor("a.bias", np.ones(3, np.float32), T.F32, (3,))
    writer.write()
    convert(tmp_path / "m.gguf", tmp_path / "q.gguf", "Q8_0")
    with GGUFFile.open(tmp_path / "m.gguf") as before, GGUFFile.open(tmp_path / "q.gguf") as after:
        assert after.alignment == 128
        own = {"general.file_type", "general.quantization_version", "general.alignment"}
        assert set(after.metadata) == set(before.metadata) | own
        for key in set(before.metadata) - own:
            assert after.metadata.stored(key) == before.metadata.stored(key)
            assert str(after.metadata.info(key)) == str(before.metadata.info(key))
        assert list(after.metadata["some.words"]) == ["a", "\u00e9", ""]


def test_parts_become_one_file(floats: Path, tmp_path: Path) -> None:
    parts = split(floats, tmp_path / "parts")
    assert len(parts) > 1
    convert(parts[0], tmp_path / "joined.gguf", "Q5_0")
    convert(floats, tmp_path / "whole.gguf", "Q5_0")
    with GGUFFile.open(tmp_path / "joined.gguf") as joined, GGUFFile.open(tmp_path / "whole.gguf") as whole:
        assert not [key for key in joined.metadata if key.startswith("split.")]
        for name in whole.tensors:
            np.testing.assert_array_equal(joined.raw(name), whole.raw(name))


def test_threads_and_pieces_do_not_matter(floats: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert(floats, tmp_path / "a.gguf", "Q6_K", threads=1)
    monkeypatch.setattr("zinc_rt.quantizing.convert.CHUNK", 3000)
    convert(floats, tmp_path / "b.gguf", "Q6_K", threads=3)
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


# ---------------------------------------------------------------- failures leave nothing


def left(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def damaged(path: Path, kind: GGMLType = T.F32, value: float = np.nan) -> Path:
    x = np.ones((4, 64), np.float32)
    x[3, 7] = value
    writer = GGUFWriter(path)
    writer.add("general.architecture", "llama")
    writer.add_tensor("a.weight", np.ones((4, 64), np.float32), T.F32, (4, 64))
    writer.add_tensor("b.weight", blocks.quantize(kind, x), kind, (4, 64))
    writer.write()
    return path


@pytest.mark.parametrize("kind", [T.F32, T.BF16])
@pytest.mark.parametrize("preset", ["Q8_0", "Q4_0"])
def test_a_value_that_is_no_number(kind: GGMLType, preset: str, tmp_path: Path) -> None:
    source = damaged(tmp_path / "m.gguf", kind)
    with pytest.raises(InvalidBlocks, match=r"m\.gguf: tensor 'b\.weight': row 3, element 7 is nan"):
        convert(source, tmp_path / "q.gguf", preset)
    assert left(tmp_path) == ["m.gguf"]


@pytest.mark.parametrize(("preset", "value"), [("Q8_0", 9e6), ("F16", 7e4), ("Q4_0", -5e5)])
def test_a_value_that_the_format_cannot_hold(preset: str, value: float, tmp_path: Path) -> None:
    source = damaged(tmp_path / "m.gguf", value=value)
    words = rf"m\.gguf: tensor 'b\.weight': row 3, element 7 is {value}.*{preset} cannot hold \(the largest is"
    with pytest.raises(InvalidBlocks, match=words):
        convert(source, tmp_path / "q.gguf", preset)
    assert left(tmp_path) == ["m.gguf"]


def test_ctrl_c(floats: Path, tmp_path: Path) -> None:
    (tmp_path / "q.gguf").write_text("older")

    def stop(done: int, total: int) -> None:
        if 4 * done > total:
            raise KeyboardInterrupt

    before = threading.active_count()
    with GGUFFile.open(floats) as file:
        preset = preset_of("Q4_0")
        work = Conversion(file, tmp_path / "q.gguf", preset, Planner(file, preset).choices())
        with pytest.raises(KeyboardInterrupt):
            work.write(threads=2, progress=stop)
    assert left(tmp_path) == ["q.gguf"]
    assert (tmp_path / "q.gguf").read_text() == "older"
    assert threading.active_count() == before


def test_a_disk_that_fills_up(floats: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(out: object, part: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("zinc_rt.gguf.writer._write_all", full)
    with pytest.raises(GGUFError, match="No space left on device"):
        convert(floats, tmp_path / "q.gguf", "Q4_0")
    assert left(tmp_path) == []


def test_targets_that_are_refused(floats: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "there.gguf"
    there.write_text("x")
    link = tmp_path / "link.gguf"
    link.symlink_to(floats)
    cases = (
        (floats, "is the model itself"),
        (link, "is the model itself"),
        (there, "is there already; .*--force"),
        (tmp_path, "is no file"),
        (tmp_path / "none" / "q.gguf", "there is no folder"),
    )
    for out, words in cases:
        with pytest.raises(QuantizeError, match=words):
            convert(floats, out, "Q8_0")
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(10**9, 10**9, 1024))
    with pytest.raises(QuantizeError, match=r"takes \d+\.\d KiB, and .* has 1\.0 KiB of room"):
        convert(floats, tmp_path / "q.gguf", "Q8_0")
    assert left(tmp_path) == ["link.gguf", "there.gguf"]


def test_llama_with_odd_rows_runs(tmp_path: Path) -> None:
    """Rows of 64 and 96: every matrix falls back, and the model still runs."""
    source = write_model(tmp_path / "m.gguf", LLAMA).path
    work = convert(source, tmp_path / "q.gguf", "Q3_K_M")
    assert {c.type for c in work.choices if not c.copied} == {T.IQ4_NL, T.Q5_0, T.Q5_1, T.Q8_0}
    tokens = random_tokens(1, 12, LLAMA.n_vocab)
    assert error(*(logits_of(p, tokens, kernels="reference") for p in (work.out, source))) < 6 * LARGEST_LOSS[T.IQ4_NL]
