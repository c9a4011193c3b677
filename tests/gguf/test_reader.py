"""Reading well-formed files: every value type, laziness, tensors, the file's life."""

from __future__ import annotations

import gc
import os
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.gguf import build
from tests.gguf.touch import touch_all
from zinc_rt.errors import ZincError
from zinc_rt.gguf import (
    GGMLType,
    GGUFError,
    GGUFFile,
    TensorInfo,
    UnsupportedTensorType,
    ValueType,
    blocks,
    get,
)
from zinc_rt.gguf.errors import FileChanged, MissingKey


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.gguf"
    path.write_bytes(build.small())
    return path


def open_bytes(tmp_path: Path, content: bytes) -> GGUFFile:
    path = tmp_path / "case.gguf"
    path.write_bytes(content)
    return GGUFFile.open(path)


def test_what_a_file_says(small: Path) -> None:
    with GGUFFile.open(str(small)) as file:
        assert (file.version, file.alignment, file.file_size) == (3, 32, small.stat().st_size)
        assert file.path == str(small)
        assert file.architecture == "llama"
        assert file.metadata["u8"] == 200
        assert file.metadata["i64"] == -(2**40)
        assert file.metadata["f32"] == 0.5
        assert file.metadata["yes"] is True
        assert file.metadata["tokens"] == ["a", "", "é", "🙂" * 3, "x" * 300, "tail"]
        assert file.metadata["scores"].tolist() == [0.0, -1.5, 3.0]
        assert file.metadata["flags"].tolist() == [False, True]
        numbers, words = file.metadata["nested"]
        assert numbers.tolist() == [1, 2]
        assert words == ["q"]
        assert list(file.metadata)[:3] == ["general.architecture", "general.alignment", "u8"]
        assert len(file.metadata) == 10
        assert file.metadata.get("absent", 7) == 7
        assert "absent" not in file.metadata


def test_tensor_directory(small: Path) -> None:
    content = small.read_bytes()
    with GGUFFile.open(small) as file:
        start = file.data_offset
        assert list(file.tensors.values()) == [
            TensorInfo("token_embd.weight", (3, 32), GGMLType.Q8_0, start, 102),
            TensorInfo("norm.weight", (5,), GGMLType.F32, start + 128, 20),
            TensorInfo("future.weight", (2, 32), GGMLType.Q4_0_4_4, start + 160, 36),
        ]
        for name, shape in (
            ("token_embd.weight", (3, 34)),
            ("norm.weight", (1, 20)),
            ("future.weight", (2, 18)),
        ):
            raw = file.raw(name)
            assert (raw.dtype, raw.shape) == (np.uint8, shape)
            assert not raw.flags.writeable
            at = file.tensors[name].offset
            assert raw.tobytes() == content[at : at + raw.nbytes]
        with pytest.raises(UnsupportedTensorType, match=r"Q4_0_4_4 is not supported yet.*Q4_K"):
            blocks.dequantize(file.tensor("future.weight").type, file.raw("future.weight"))


SCALARS = {
    ValueType.UINT8: ("B", [0, 255]),
    ValueType.INT8: ("b", [-128, 127]),
    ValueType.UINT16: ("H", [0, 65535]),
    ValueType.INT16: ("h", [-32768, 32767]),
    ValueType.UINT32: ("I", [0, 2**32 - 1]),
    ValueType.INT32: ("i", [-(2**31), 2**31 - 1]),
    ValueType.UINT64: ("Q", [0, 2**64 - 1]),
    ValueType.INT64: ("q", [-(2**63), 2**63 - 1]),
    ValueType.FLOAT32: ("f", [0.0, -1.5, float("inf")]),
    ValueType.FLOAT64: ("d", [0.1, -1e300]),
    ValueType.BOOL: ("B", [0, 1]),
}


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("kind", SCALARS, ids=lambda k: k.name)
def test_every_scalar_type_alone_and_in_arrays(tmp_path: Path, kind: ValueType, version: int) -> None:
    code, values = SCALARS[kind]
    packed = [struct.pack("<" + code, v) for v in values]
    keys = [build.key(f"k{i}", build.U32.pack(kind) + p) for i, p in enumerate(packed)]
    keys += [build.key("all", build.array(kind, packed)), build.key("none", build.array(kind, []))]
    keys.append(build.key("after", build.string("still here")))
    with open_bytes(tmp_path, build.file(keys, version=version)) as file:
        assert file.version == version
        wanted = [bool(v) for v in values] if kind is ValueType.BOOL else values
        for i, value in enumerate(wanted):
            got = file.metadata[f"k{i}"]
            assert (got, type(got)) == (value, type(value))
            assert str(file.metadata.info(f"k{i}")) == kind.name.lower()
        for name, expected in (("all", wanted), ("none", [])):
            got = file.metadata[name]
            assert got.tolist() == expected
            assert got.dtype == np.dtype("?" if kind is ValueType.BOOL else "<" + code)
            assert not got.flags.writeable
            assert str(file.metadata.info(name)) == f"{kind.name.lower()}[{len(expected)}]"
        assert file.metadata["after"] == "still here"


AWKWARD = [
    [],
    [""],
    [""] * 700,
    ["\0"],
    ["a\0b", "\0\0\0\0\0\0\0\0\0", "", "\0" * 20, "z"],
    ["x" * n for n in range(600)],
    ["y" * 255, "y" * 256, "y" * 257] * 50,
    [chr(c) for c in range(0x80, 0x2000)],
    ["é" * 127, "🙂" * 63, "日本"] * 400,
    ["q" * 100_000, "r", "s" * 300_000, ""],
    [f"t{i}" for i in range(40_000)],
    [("u" * 400 if i % 5000 == 0 else f"{i}") for i in range(20_000)],
    ["\x01\0\0\0\0\0\0\0" * 3, "\x08\0\0\0\0\0\0\0"] * 100,  # text that looks like length fields
]


@pytest.mark.parametrize("values", AWKWARD, ids=range(len(AWKWARD)))
def test_string_arrays_of_every_texture(tmp_path: Path, values: list[str]) -> None:
    keys = [build.key("s", build.strings(values)), build.key("after", build.u32(77))]
    with open_bytes(tmp_path, build.file(keys)) as file:
        assert file.metadata["after"] == 77
        assert file.metadata["s"] == values
        assert file.metadata.info("s").count == len(values)


def test_values_are_decoded_once_on_first_access_and_can_be_forgotten(small: Path, tmp_path: Path) -> None:
    with GGUFFile.open(small) as file:
        first = file.metadata["tokens"]
        assert file.metadata["tokens"] is first
        file.metadata.forget()
        assert file.metadata["tokens"] == first
        assert file.metadata["tokens"] is not first
    # A broken value in the middle of the file troubles only those who ask for it.
    keys = [build.key("bad", build.strings([b"\xff"])), build.key("good", build.u32(1))]
    with open_bytes(tmp_path, build.file(keys)) as file:
        assert file.metadata["good"] == 1
        with pytest.raises(GGUFError, match="not UTF-8: byte 0xff"):
            file.metadata["bad"]


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
def test_alignment_of_the_file_is_obeyed(tmp_path: Path, alignment: int) -> None:
    keys = [build.key("general.alignment", build.u32(alignment))]
    at = -(-12 // alignment) * alignment
    tensors = [build.tensor("a", [3], 0, 0), build.tensor("b", [2, 1], 0, at)]
    data = b"A" * 12 + bytes(at - 12) + b"B" * 8
    with open_bytes(tmp_path, build.file(keys, tensors, data, alignment=alignment)) as file:
        assert file.alignment == alignment
        assert file.data_offset % alignment == 0
        assert file.raw("a").tobytes() == b"A" * 12
        assert file.raw("b").tobytes() == b"B" * 8
        assert file.tensors["b"].shape == (1, 2)


def test_shapes_up_to_four_dimensions_and_a_scalar(tmp_path: Path) -> None:
    tensors = [
        build.tensor("s", [], 0, 0),
        build.tensor("t", [32, 3, 2], 2, 32),
        build.tensor("u", [2, 1, 1, 3], 1, 160),
    ]
    with open_bytes(tmp_path, build.file([], tensors, bytes(172))) as file:
        assert [t.shape for t in file.tensors.values()] == [(), (2, 3, 32), (3, 1, 1, 2)]
        assert [file.raw(n).shape for n in "stu"] == [(1, 4), (6, 18), (3, 4)]
        assert [t.n_elements for t in file.tensors.values()] == [1, 192, 6]


@pytest.mark.parametrize("kind", GGMLType, ids=lambda t: t.name)
def test_a_file_with_any_known_type_opens_and_lists(tmp_path: Path, kind: GGMLType) -> None:
    data = bytes(2 * kind.block_bytes)
    with open_bytes(tmp_path, build.file([], [build.tensor("w", [kind.block_size, 2], kind, 0)], data)) as file:
        assert file.tensors["w"].type is kind
        assert file.raw("w").shape == (2, kind.block_bytes)


def test_no_keys_and_no_tensors(tmp_path: Path) -> None:
    with open_bytes(tmp_path, build.file()) as file:
        assert len(file.metadata) == len(file.tensors) == 0
        with pytest.raises(MissingKey, match=r"general\.architecture"):
            _ = file.architecture


def test_tensors_in_any_order_with_gaps(tmp_path: Path) -> None:
    tensors = [build.tensor("late", [1], 0, 96), build.tensor("early", [1], 0, 0)]
    with open_bytes(tmp_path, build.file([], tensors, bytes(96) + b"LATE")) as file:
        assert list(file.tensors) == ["late", "early"]
        assert file.raw("late").tobytes() == b"LATE"


def test_get_checks_presence_and_type(small: Path) -> None:
    with GGUFFile.open(small) as file:
        meta = file.metadata
        assert get(meta, "u8", int) == 200
        assert get(meta, "u8", float) == 200.0
        assert type(get(meta, "u8", float)) is float
        assert get(meta, "yes", bool) is True
        assert get(meta, "absent", int, 5) == 5
        assert get(meta, "tokens", list)[0] == "a"
        assert get(meta, "scores", np.ndarray).dtype == np.float32
        with pytest.raises(MissingKey, match="'absent'"):
            get(meta, "absent", int)
        with pytest.raises(MissingKey, match="'absent'"):
            get({}, "absent", int)
        for key, kind in (
            ("yes", int),
            ("u8", bool),
            ("f32", int),
            ("tokens", str),
            ("general.architecture", float),
        ):
            with pytest.raises(GGUFError, match=key):
                get(meta, key, kind)
        with pytest.raises(GGUFError, match="an array of 6 items, where an integer is needed"):
            get(meta, "tokens", int)
        with pytest.raises(GGUFError, match="an array of 2 items, where an array of strings is needed"):
            get(meta, "nested", list)


def test_missing_names_are_key_errors_too(small: Path) -> None:
    with GGUFFile.open(small) as file:
        for action, kind in (
            (lambda: file.metadata["nope"], MissingKey),
            (lambda: file.raw("nope"), MissingKey),
            (lambda: file.tensor("nope"), MissingKey),
        ):
            with pytest.raises(kind, match="'nope'") as caught:
                action()
            assert isinstance(caught.value, KeyError)
            assert isinstance(caught.value, ZincError)
            assert str(small) in str(caught.value)


def test_views_outlive_the_file_and_reads_after_close_are_refused(small: Path) -> None:
    file = GGUFFile.open(small)
    raw = file.raw("norm.weight")
    kept = raw.tobytes()
    tokens = file.metadata["tokens"]
    file.close()
    file.close()
    assert raw.tobytes() == kept
    assert tokens[0] == "a"
    for action in (lambda: file.raw("norm.weight"), lambda: file.metadata["scores"]):
        with pytest.raises(FileChanged, match="closed"):
            action()


def test_no_descriptor_is_left_open(small: Path, tmp_path: Path) -> None:
    def descriptors() -> int:
        """Other tests may have left some behind, and what keeps those open may be garbage's garbage."""
        count, last = len(os.listdir("/proc/self/fd")), -1
        while count != last:
            gc.collect()
            count, last = len(os.listdir("/proc/self/fd")), count
        return count

    before = descriptors()
    for _ in range(5):
        with GGUFFile.open(small) as file:
            file.raw("norm.weight")
        assert GGUFFile.open(small).raw("norm.weight").size == 20  # never closed, only forgotten
        for cut in (0, 10, 30, 200):
            bad = tmp_path / "bad.gguf"
            bad.write_bytes(small.read_bytes()[:cut])
            assert touch_all(bad) is not None
        assert touch_all(tmp_path) is not None
    assert descriptors() == before


def test_repr_and_paths_of_all_kinds(small: Path) -> None:
    with GGUFFile.open(small) as file:
        assert "3 tensors" in repr(file)
        assert "10 keys" in repr(file.metadata)
    with GGUFFile.open(os.fsencode(small)) as file:  # type: ignore[arg-type]
        assert file.path == str(small)


# ---------------------------------------------------------------- files of the gguf package


@pytest.mark.parametrize("alignment", [None, 64])
def test_a_file_by_the_gguf_package(tmp_path: Path, alignment: int | None) -> None:
    path = tmp_path / "theirs.gguf"
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "qwen3")
    if alignment:
        writer.add_custom_alignment(alignment)
    values = {
        "a.u8": 3,
        "a.i32": -9,
        "a.f32": 0.25,
        "a.flag": True,
        "a.text": "hallo",
        "a.f64": 1e-200,
        "a.u64": 2**63,
    }
    for name, value, add in zip(
        values,
        values.values(),
        [writer.add_uint8, writer.add_int32, writer.add_float32, writer.add_bool, writer.add_string,
         writer.add_float64, writer.add_uint64],
    ):  # fmt: skip
        add(name, value)
    tokens = [f"tok{i}é" for i in range(5000)]
    writer.add_token_list(tokens)
    writer.add_token_scores([float(i) for i in range(5000)])
    weights = rng.standard_normal((6, 64)).astype(np.float32)
    q8 = gguf.quants.quantize(weights, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("w.f32", weights)
    writer.add_tensor("w.f16", weights.astype(np.float16))
    writer.add_tensor("w.q8", q8, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("n", weights[0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with GGUFFile.open(path) as file:
        assert file.architecture == "qwen3"
        assert file.alignment == (alignment or 32)
        assert {k: file.metadata[k] for k in values} == values
        assert file.metadata["tokenizer.ggml.tokens"] == tokens
        assert file.metadata["tokenizer.ggml.scores"].tolist() == [float(i) for i in range(5000)]
        assert [(t.name, t.shape, t.type) for t in file.tensors.values()] == [
            ("w.f32", (6, 64), GGMLType.F32),
            ("w.f16", (6, 64), GGMLType.F16),
            ("w.q8", (6, 64), GGMLType.Q8_0),
            ("n", (64,), GGMLType.F32),
        ]
        np.testing.assert_array_equal(file.raw("w.q8"), q8)
        np.testing.assert_array_equal(blocks.dequantize(GGMLType.F32, file.raw("w.f32")), weights)
        for theirs in gguf.GGUFReader(path).tensors:
            assert file.tensors[theirs.name].offset == theirs.data_offset
            assert file.raw(theirs.name).tobytes() == theirs.data.tobytes()
