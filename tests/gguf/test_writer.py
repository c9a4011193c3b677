"""Writing: round trips with our reader and the `gguf` package's, refusals, and nothing half written."""

from __future__ import annotations

import math
import os
import resource
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zinc_rt.gguf import GGMLType, GGUFFile, GGUFWriter, ValueType, blocks, limits
from zinc_rt.gguf.errors import GGUFError

V = ValueType
RANGES = {
    V.UINT8: (0, 2**8 - 1),
    V.INT8: (-(2**7), 2**7 - 1),
    V.UINT16: (0, 2**16 - 1),
    V.INT16: (-(2**15), 2**15 - 1),
    V.UINT32: (0, 2**32 - 1),
    V.INT32: (-(2**31), 2**31 - 1),
    V.UINT64: (0, 2**64 - 1),
    V.INT64: (-(2**63), 2**63 - 1),
}
TEXT = st.text(max_size=20)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)


def scalars(kind: ValueType) -> st.SearchStrategy[Any]:
    if kind in RANGES:
        return st.integers(*RANGES[kind])
    if kind is V.BOOL:
        return st.booleans()
    if kind is V.STRING:
        return TEXT
    return st.floats(width=32 if kind is V.FLOAT32 else 64, allow_nan=False)


SCALAR_TYPES = [t for t in V if t is not V.ARRAY]


@st.composite
def typed_values(draw: st.DrawFn, depth: int = 2) -> tuple[Any, ValueType]:
    """A scalar, an array or arrays of arrays, with the type of its innermost items."""
    kind = draw(st.sampled_from(SCALAR_TYPES))
    level = draw(st.integers(0, depth + 1))
    strategy = scalars(kind)
    for _ in range(level):
        strategy = st.lists(strategy, min_size=0 if level == 1 else 1, max_size=4)
    return draw(strategy), kind


def plain(value: Any) -> Any:
    """A decoded value with its arrays as lists."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [plain(v) for v in value] if isinstance(value, list) else value


QUANTISED_OR_NOT = [t for t in GGMLType if t.name not in {"Q4_2", "Q4_3"}]


@st.composite
def tensors(draw: st.DrawFn) -> tuple[GGMLType, tuple[int, ...], bytes]:
    kind = draw(st.sampled_from(QUANTISED_OR_NOT))
    shape = (*draw(st.lists(st.integers(1, 3), max_size=3)), draw(st.integers(1, 2)) * kind.block_size)
    size = math.prod(shape[:-1]) * kind.row_bytes(shape[-1])
    return kind, shape, draw(st.randoms(use_true_random=False)).randbytes(size)


@given(
    values=st.dictionaries(NAMES, typed_values(), max_size=5),
    stored=st.dictionaries(NAMES, tensors(), max_size=4),
    alignment=st.sampled_from([8, 32, 64, 1024]),
    version=st.sampled_from([2, 3]),
)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_round_trip(
    tmp_path: Path, values: dict[str, Any], stored: dict[str, Any], alignment: int, version: int
) -> None:
    path = tmp_path / "out.gguf"
    values.pop("general.alignment", None)
    writer = GGUFWriter(path, alignment=alignment, version=version)
    for name, (value, kind) in values.items():
        writer.add(name, value, kind)
    for name, (kind, shape, raw) in stored.items():
        writer.add_tensor(name, raw, kind, shape)
    size = writer.write()
    assert size == path.stat().st_size
    with GGUFFile.open(path) as file:
        assert (file.version, file.alignment) == (version, alignment)
        keys = [k for k in file.metadata if k != "general.alignment"]
        assert keys == list(values)
        for name, (value, kind) in values.items():
            assert plain(file.metadata[name]) == value
            info = file.metadata.info(name)
            assert (info.item if isinstance(value, list) else info.type) in {kind, V.ARRAY}
        assert list(file.tensors) == list(stored)
        for name, (kind, shape, raw) in stored.items():
            tensor = file.tensors[name]
            assert (tensor.type, tensor.shape, tensor.offset % alignment) == (kind, shape, 0)
            assert file.raw(name).tobytes() == raw


def test_the_gguf_package_reads_what_we_write(tmp_path: Path) -> None:
    path = tmp_path / "ours.gguf"
    rng = np.random.default_rng(3)
    values = {
        "general.architecture": ("llama", V.STRING),
        "s.empty": ("", V.STRING),
        "n.bool": (True, V.BOOL),
        "n.f32": (0.1, V.FLOAT32),
        "n.f64": (0.1, V.FLOAT64),
        **{f"n.{kind.name}": (high, kind) for kind, (_, high) in RANGES.items()},
        **{f"a.{kind.name}": ([low, high, 1], kind) for kind, (low, high) in RANGES.items()},
        "a.f32": ([0.5, -1.0], V.FLOAT32),
        "a.bool": ([True, False, True], V.BOOL),
        "a.str": ([f"tok{i}é" for i in range(300)], V.STRING),
    }
    writer = GGUFWriter(path, alignment=64)
    for key, (value, kind) in values.items():
        writer.add(key, value, kind)
    stored = {}
    for kind in (*blocks.QUANTIZABLE, GGMLType.Q6_K, GGMLType.MXFP4):
        raw = rng.integers(0, 256, (3, 2 * kind.block_bytes), np.uint8)
        stored[f"{kind.name}.weight"] = (kind, raw)
        writer.add_tensor(f"{kind.name}.weight", raw, kind, (3, 2 * kind.block_size))
    writer.write()

    theirs = gguf.GGUFReader(path)
    assert theirs.alignment == 64
    for key, (value, kind) in values.items():
        field = theirs.get_field(key)
        assert field is not None
        got = field.contents()
        assert got == (pytest.approx(value) if kind is V.FLOAT32 else value)
        assert int(field.types[-1]) == kind
    with GGUFFile.open(path) as ours:
        assert [t.name for t in theirs.tensors] == list(stored) == list(ours.tensors)
        for tensor in theirs.tensors:
            kind, raw = stored[tensor.name]
            mine = ours.tensors[tensor.name]
            assert int(tensor.tensor_type) == kind == mine.type
            assert tuple(reversed(tensor.shape.tolist())) == (3, 2 * kind.block_size) == mine.shape
            assert tensor.data_offset == mine.offset
            assert tensor.data.tobytes() == raw.tobytes()
        for key in values:
            assert plain(ours.metadata[key]) == theirs.get_field(key).contents()  # type: ignore[union-attr]


def test_types_are_inferred(tmp_path: Path) -> None:
    cases: list[tuple[Any, str]] = [
        (True, "bool"),
        (5, "int32"),
        (-(2**31) - 1, "int64"),
        (2**31, "int64"),
        (2**63, "uint64"),
        (1.0, "float32"),
        ("x", "string"),
        (np.float64(1.0), "float64"),
        (np.uint8(3), "uint8"),
        ([1, 2], "int32[2]"),
        ([1, 2**40], "int64[2]"),
        ([1, 2**63], "uint64[2]"),
        (("a", "b"), "string[2]"),
        ([True], "bool[1]"),
        ([[1], [2, 3]], "array[2]"),
        (np.arange(3, dtype=np.int16), "int16[3]"),
        (np.zeros(2, np.bool_), "bool[2]"),
        (np.array(["p", "q"]), "string[2]"),
        (np.zeros(0, np.float32), "float32[0]"),
        ([np.zeros(1, np.uint16), np.ones(2, np.uint16)], "array[2]"),
    ]
    writer = GGUFWriter(tmp_path / "x.gguf")
    for i, (value, _) in enumerate(cases):
        writer.add(f"k{i}", value)
    writer.write()
    with GGUFFile.open(tmp_path / "x.gguf") as file:
        assert [str(file.metadata.info(f"k{i}")) for i in range(len(cases))] == [kind for _, kind in cases]
        assert plain(file.metadata["k18"]) == []
        assert plain(file.metadata["k19"]) == [[0], [1, 1]]


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        (256, V.UINT8, "256 does not fit UINT8"),
        (-1, V.UINT64, "-1 does not fit"),
        (2**64, V.UINT64, "does not fit"),
        (1e39, V.FLOAT32, "does not fit FLOAT32"),
        (10**400, V.FLOAT64, "does not fit"),
        (1.5, V.INT32, "no value of type INT32"),
        (True, V.INT32, "no value of type INT32"),
        (1, V.BOOL, "no value of type BOOL"),
        (5, V.STRING, "not a string"),
        ("\ud800", V.STRING, "UTF-8"),
        ([1, 300], V.UINT8, "300 does not fit UINT8"),
        ([1, [2]], V.UINT8, "mixes arrays and plain items"),
        ([1], V.ARRAY, "type of those"),
        (np.zeros((2, 2)), V.FLOAT64, "2 dimensions"),
        ([], None, "explicit type"),
        ([1, "a"], None, "mixes items of types INT32, STRING"),
        ([1, 2.0], None, "mixes items"),
        (None, None, "NoneType"),
        ({"a": 1}, None, "dict"),
        (np.zeros(2, np.complex64), None, "complex64"),
        ([-1, 2**63], None, "does not fit UINT64"),
    ],
)
def test_values_that_do_not_fit(tmp_path: Path, value: Any, kind: ValueType | None, words: str) -> None:
    writer = GGUFWriter(tmp_path / "x.gguf")
    with pytest.raises(GGUFError, match=words) as caught:
        writer.add("the.key", value, kind)
    assert "'the.key'" in str(caught.value)
    writer.add("the.key", 1)  # a refused value leaves no trace
    assert list(tmp_path.iterdir()) == []


def test_a_number_too_long_for_python_to_print(tmp_path: Path) -> None:
    with pytest.raises(GGUFError, match="a huge int does not fit INT64"):
        GGUFWriter(tmp_path / "x.gguf").add("k", 10**5000, V.INT64)


def test_nesting_stops_where_reading_does(tmp_path: Path) -> None:
    value: Any = [1]
    for _ in range(limits.MAX_DEPTH - 1):
        value = [value]
    writer = GGUFWriter(tmp_path / "x.gguf")
    writer.add("deep", value, V.UINT8)
    with pytest.raises(GGUFError, match="nested"):
        writer.add("deeper", [value], V.UINT8)
    writer.write()
    with GGUFFile.open(tmp_path / "x.gguf") as file:
        assert plain(file.metadata["deep"]) == value


def test_keys_tensors_and_settings_that_are_refused(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "x.gguf")
    writer.add("k", 1)
    writer.add_tensor("t", bytes(8), GGMLType.F32, (2,))
    for action, words in (
        (lambda: writer.add("k", 2), "'k' was added before"),
        (lambda: writer.add("k" * 70_000, 2), "the limit is 65535"),
        (lambda: writer.add("\ud800", 2), "UTF-8"),
        (lambda: writer.add("general.alignment", 64, V.UINT32), "argument `alignment`"),
        (lambda: writer.add_tensor("t", bytes(8), GGMLType.F32, (2,)), "'t' was added before"),
        (lambda: writer.add_tensor("u", bytes(7), GGMLType.F32, (2,)), "takes 8 bytes as F32, got 7"),
        (lambda: writer.add_tensor("u", bytes(34), GGMLType.Q8_0, (33,)), "33 elements"),
        (lambda: writer.add_tensor("u", b"", GGMLType.F32, (0,)), "all above 0"),
        (lambda: writer.add_tensor("u", bytes(4), GGMLType.F32, (1,) * 5), "up to 4"),
        (lambda: writer.add_tensor("u" * 2000, bytes(4), GGMLType.F32, (1,)), "limit is 1024"),
        (lambda: writer.add_tensor("u", np.array([None]), GGMLType.F32, (1,)), "dtype object"),
        (lambda: GGUFWriter("x", alignment=0), "alignment 0"),
        (lambda: GGUFWriter("x", alignment=48), "alignment 48"),
        (lambda: GGUFWriter("x", version=1), "version 1"),
    ):
        with pytest.raises(GGUFError, match=words):
            action()


def test_arrays_of_any_dtype_and_layout_give_their_bytes(tmp_path: Path) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    writer = GGUFWriter(tmp_path / "x.gguf")
    writer.add_tensor("c", x, GGMLType.F32, x.shape)
    writer.add_tensor("f", np.asfortranarray(x), GGMLType.F32, x.shape)
    writer.add_tensor("big", x.astype(">f4"), GGMLType.F32, x.shape)
    writer.add_tensor("strided", np.repeat(x, 2, axis=1)[:, ::2], GGMLType.F32, x.shape)
    writer.add_tensor("scalar", np.float32(7), GGMLType.F32, ())
    writer.write()
    with GGUFFile.open(tmp_path / "x.gguf") as file:
        for name in ("c", "f", "big", "strided"):
            np.testing.assert_array_equal(blocks.dequantize(GGMLType.F32, file.raw(name)), x)
        assert struct.unpack("<f", file.raw("scalar").tobytes()) == (7.0,)


# ---------------------------------------------------------------- all or nothing


def filled(path: Path, size: int = 1 << 20) -> GGUFWriter:
    writer = GGUFWriter(path)
    writer.add("k", "v")
    writer.add_tensor("t", np.zeros(size, np.uint8), GGMLType.I8, (size,))
    return writer


def test_an_older_file_is_replaced_only_by_a_complete_one(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"older")
    filled(path).write()
    with GGUFFile.open(path) as file:
        assert file.raw("t").size == 1 << 20
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o666 & ~current_umask()


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"older")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, hard))
    try:
        with pytest.raises(GGUFError, match="cannot be written: File too large"):
            filled(path).write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"older"


@pytest.mark.parametrize("calls", [("fsync",), ("link", "replace")])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_failure_at_the_last_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: tuple[str, ...], error: BaseException
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    path = tmp_path / "x.gguf"
    for call in calls:
        monkeypatch.setattr(os, call, fail)
    refused = isinstance(error, OSError)
    with pytest.raises(GGUFError if refused else KeyboardInterrupt, match="No space left" if refused else None):
        filled(path).write()
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    for path in (tmp_path / "absent" / "x.gguf", tmp_path / "dir", Path("with\0nul"), tmp_path / ("n" * 300)):
        with pytest.raises(GGUFError, match="cannot be written"):
            filled(path, 16).write()
    assert list(tmp_path.iterdir()) == [tmp_path / "dir"]


def test_a_link_keeps_pointing(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target = tmp_path / "real" / "x.gguf"
    link = tmp_path / "link.gguf"
    link.symlink_to(target)
    filled(link, 16).write()
    assert link.is_symlink()
    GGUFFile.open(target).close()


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    writer = filled(tmp_path / "x.gguf", 64)
    writer.write()
    first = (tmp_path / "x.gguf").read_bytes()
    writer.write()
    assert (tmp_path / "x.gguf").read_bytes() == first
