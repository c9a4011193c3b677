"""Which tensor gets which format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import gguf
import numpy as np
import pytest

from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGMLType, GGUFFile, GGUFWriter, UnsupportedTensorType, ValueType
from zinc_rt.quantizing.errors import QuantizeError
from zinc_rt.quantizing.plan import Keep, Planner, notes, parse_keep
from zinc_rt.quantizing.presets import ALIASES, FALLBACKS, PRESETS, format_of, preset_of, quantization_of
from zinc_rt.quantizing.rows import NEED_IMPORTANCE, WRITTEN

T = GGMLType
LAYER = {
    "attn_norm.weight": (256,), "attn_q.weight": (256, 256), "attn_k.weight": (64, 256), "attn_v.weight": (64, 256),
    "attn_output.weight": (256, 256), "ffn_gate.weight": (256, 256), "ffn_down.weight": (256, 256),
    "ffn_gate_inp.weight": (8, 256), "ffn_up_exps.weight": (8, 256, 256), "ssm_conv1d.weight": (256, 4),
    "attn_q.bias": (256,), "attn_k_norm.weight": (2, 256),
}  # fmt: skip


def model(
    path: Path,
    *,
    n_layers: int = 16,
    tied: bool = False,
    heads: tuple[int, int] = (4, 1),
    also: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    source: GGMLType = T.F16,
    keys: Mapping[str, int] = MappingProxyType({}),
) -> GGUFFile:
    """An open file of such tensors, all 0."""
    writer = GGUFWriter(path)
    writer.add("general.architecture", "llama")
    for key, value in zip(("head_count", "head_count_kv"), heads, strict=True):
        writer.add(f"llama.attention.{key}", value, ValueType.UINT32)
    for key, value in keys.items():
        writer.add(key, value, ValueType.UINT32)
    shapes = {"token_embd.weight": (512, 256), "output_norm.weight": (256,)}
    shapes |= {} if tied else {"output.weight": (512, 256)}
    shapes |= {f"blk.{i}.{name}": shape for i in range(n_layers) for name, shape in LAYER.items()}
    for name, shape in {**shapes, **also}.items():
        kind = T.F32 if len(shape) == 1 or "conv" in name else source
        writer.add_tensor(name, np.zeros(int(np.prod(shape[:-1])) * kind.row_bytes(shape[-1]), np.uint8), kind, shape)
    writer.write()
    return GGUFFile.open(path)


def formats(file: GGUFFile, preset: str, *keeps: Keep) -> dict[str, str]:
    with file:
        return {c.tensor.name: c.type.name for c in Planner(file, preset_of(preset), keeps).choices()}


def layers(found: dict[str, str], role: str, kind: str) -> list[int]:
    return [i for i in range(16) if found[f"blk.{i}.{role}.weight"] == kind]


def test_q4_k_m(tmp_path: Path) -> None:
    found = formats(model(tmp_path / "m.gguf"), "q4_k_m")
    some = [0, 1, 4, 7, 10, 13, 14, 15]
    for role in ("attn_v", "ffn_down"):
        assert layers(found, role, "Q6_K") == some
        assert layers(found, role, "Q4_K") == [i for i in range(16) if i not in some]
    assert found["output.weight"] == "Q6_K"
    assert {found[n] for n in ("token_embd.weight", "blk.3.attn_q.weight", "blk.3.ffn_up_exps.weight")} == {"Q4_K"}
    kept = ("attn_norm.weight", "ssm_conv1d.weight", "attn_q.bias")
    assert {found[f"blk.0.{name}"] for name in kept} == {"F32"}
    assert {found[f"blk.0.{name}.weight"] for name in ("ffn_gate_inp", "attn_k_norm")} == {"F16"}
    assert formats(model(tmp_path / "t.gguf", tied=True), "Q4_K")["token_embd.weight"] == "Q6_K"


def test_other_mixtures(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    small = formats(model(path), "Q4_K_S")
    assert layers(small, "attn_v", "Q5_K") == [0, 1, 2, 3]
    assert layers(small, "ffn_down", "Q5_K") == [0, 1]
    three = formats(model(path), "Q3_K_M")
    assert (layers(three, "attn_v", "Q5_K"), layers(three, "ffn_down", "Q5_K")) == ([0, 1], [0])
    assert layers(three, "attn_v", "Q4_K") == list(range(2, 16))
    assert three["blk.9.attn_output.weight"] == "Q4_K"
    assert formats(model(path), "Q2_K")["blk.9.attn_v.weight"] == "Q4_K"
    assert formats(model(path, heads=(4, 2)), "Q2_K")["blk.9.attn_v.weight"] == "Q3_K"
    moe = formats(model(path), "mxfp4_moe")
    assert {moe[n] for n in ("token_embd.weight", "output.weight", "blk.2.ffn_down.weight")} == {"Q8_0"}
    assert moe["blk.2.ffn_up_exps.weight"] == "MXFP4"


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_those_of_the_field(name: str) -> None:
    """`general.file_type` as the `gguf` package numbers it, and llama.h those that it lacks."""
    expected = {"F32": "ALL_F32", "MXFP4": "MOSTLY_MXFP4_MOE"}.get(name, f"MOSTLY_{name}")
    numbers = {"MOSTLY_Q2_0": 41, **{member.name: int(member) for member in gguf.LlamaFileType}}
    assert PRESETS[name].file_type == numbers[expected]
    rules = [rule.type for rule in PRESETS[name].rules]
    assert {PRESETS[name].base, *rules} <= set(WRITTEN)
    assert set(ALIASES.values()) <= set(PRESETS)


def test_rows_that_are_no_whole_blocks_fall_back(tmp_path: Path) -> None:
    odd = {"blk.0.attn_gate.weight": (4, 96), "blk.0.attn_sinks.weight": (4, 40)}
    with model(tmp_path / "m.gguf", n_layers=1, also=odd) as file:
        for preset, expected in (("Q4_K_M", "Q5_0"), ("Q6_K", "Q8_0"), ("IQ4_XS", "IQ4_NL"), ("NVFP4", "MXFP4")):
            choices = Planner(file, preset_of(preset)).choices()
            found = {c.tensor.name: c.type.name for c in choices}
            assert found["blk.0.attn_gate.weight"] == expected
            assert found["blk.0.attn_sinks.weight"] == "F16"
            lines = list(notes(choices))
            assert (
                f"attn_gate: {expected}, rows of 96 are no whole number of {preset_of(preset).base.name} blocks"
                in lines
            )
            assert "attn_sinks: F16, rows of 40 are no whole number of blocks" in lines
    for wide, narrow in FALLBACKS.items():
        assert narrow.block_size == 32
        assert narrow.block_bytes / 32 >= wide.block_bytes / wide.block_size or wide is T.NVFP4


def test_what_the_caller_keeps(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    keeps = [parse_keep("blk.[01].attn_v.weight=q8_0"), parse_keep("*attn_*=Q5_K"), Keep("output.weight", T.F16)]
    found = formats(model(path), "Q4_0", *keeps)
    assert layers(found, "attn_v", "Q8_0") == [0, 1]
    assert layers(found, "attn_q", "Q5_K") == list(range(16))
    assert found["output.weight"] == "F16"
    assert found["blk.0.attn_norm.weight"] == "F32"
    with pytest.raises(QuantizeError, match=r"attn_w\.weight.* fits no matrix"):
        formats(model(path), "Q4_0", parse_keep("*.attn_w.weight=Q8_0"))
    with pytest.raises(QuantizeError, match="fits no matrix"):
        formats(model(path), "Q4_0", parse_keep("*_norm.weight=Q8_0"))
    with pytest.raises(QuantizeError, match="rows of 96, no whole number of the 256"):
        formats(model(path, also={"x.weight": (2, 96)}), "Q4_0", parse_keep("x.*=Q4_K"))
    for text in ("attn", "=Q8_0"):
        with pytest.raises(UsageError, match="must look like"):
            parse_keep(text)
    for text in ("attn=", "attn=Q9"):
        with pytest.raises(UsageError, match="no format"):
            parse_keep(text)


def test_what_is_quantised_already(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    with pytest.raises(QuantizeError, match=r"is Q4_0, quantised already.*--requantize"):
        formats(model(path, source=T.Q4_0), "Q8_0")
    with model(path, source=T.Q4_0) as file:
        assert Planner(file, preset_of("Q8_0"), requantize=True).choices()[0].type is T.Q8_0
    assert formats(model(path, source=T.Q8_0), "Q4_K_M")["blk.3.attn_q.weight"] == "Q4_K"
    with model(path, n_layers=1, also={"a.weight": (1, 256)}, source=T.Q8_K) as file:
        planner = Planner(file, preset_of("Q8_0"), requantize=True)
        with pytest.raises(UnsupportedTensorType, match="Q8_K"):
            planner.choices()


def test_unknown_names() -> None:
    for kind in NEED_IMPORTANCE:
        with pytest.raises(UsageError, match=f"{kind.name} is not written: with so few bits"):
            preset_of(kind.name.lower())
    with pytest.raises(UsageError, match=r"no format 'Q9_K'; there are F32, F16.*Q2_K"):
        preset_of("Q9_K")
    with pytest.raises(UsageError, match="is not written"):
        format_of("IQ3_S")
    assert format_of("q5_k") is T.Q5_K


def test_what_a_file_is_called(tmp_path: Path) -> None:
    """By its number where one mixture has that, else by what most of its bytes are."""
    for n, (number, name) in enumerate([(15, "Q4_K_M"), (38, "Q5_0"), (None, "Q5_0")]):
        also = {} if number is None else {"general.file_type": number}
        with model(tmp_path / f"{n}.gguf", n_layers=1, source=T.Q5_0, keys=also) as file:
            assert quantization_of(file) == name
