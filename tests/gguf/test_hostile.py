"""Broken and hostile files: each kind of damage gets its own error, at its place, quickly, in little memory."""

from __future__ import annotations

import os
import resource
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gguf import build
from tests.gguf.touch import check
from zinc_rt.gguf import GGUFError, GGUFFile, ValueType, limits
from zinc_rt.gguf import errors as e

ARRAY, STRING, U8 = ValueType.ARRAY, ValueType.STRING, ValueType.UINT8
HUGE = 2**60


def read_all(path: Path | str) -> None:
    with GGUFFile.open(path) as file:
        for key in file.metadata:
            file.metadata[key]
        for name in file.tensors:
            file.raw(name)


def refused(path: Path | str, kind: type[GGUFError], *words: str) -> GGUFError:
    """Opening and reading everything meets exactly this kind of error, whose message has these words."""
    start = time.process_time()
    with pytest.raises(GGUFError) as caught:
        read_all(path)
    assert time.process_time() - start < 2
    error = check(caught.value)
    assert type(error) is kind, error
    for word in words:
        assert word in str(error), error
    return error


@pytest.fixture
def write(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(content: bytes) -> Path:
        path = tmp_path / "case.gguf"
        path.write_bytes(content)
        return path

    return write


Write = Callable[[bytes], Path]

# ---------------------------------------------------------------- not a file, not GGUF


def test_missing_directory_pipe_device(tmp_path: Path) -> None:
    refused(tmp_path / "none.gguf", e.FileAccessError, "No such file")
    refused(tmp_path, e.FileAccessError, "is a directory")
    refused(tmp_path / "none.gguf" / "below", e.FileAccessError)
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", e.FileAccessError, "not a regular file")
    refused("/dev/zero", e.FileAccessError, "not a regular file")
    refused("with\0nul", e.FileAccessError, "null")
    refused("two\nlines", e.FileAccessError, "two\\nlines")
    refused("x" * 5000, e.FileAccessError, "too long")


@pytest.mark.parametrize("call", ["open", "pread"])
def test_permission_denied_and_read_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    path = tmp_path / "case.gguf"
    path.write_bytes(build.small())

    def fail(*_: object) -> None:
        raise PermissionError(13, "Permission denied") if call == "open" else OSError(5, "Input/output error")

    monkeypatch.setattr(os, call, fail)
    refused(path, e.FileAccessError, "Permission denied" if call == "open" else "Input/output error")


def test_permission_denied_for_real(tmp_path: Path) -> None:
    path = tmp_path / "case.gguf"
    path.write_bytes(build.small())
    path.chmod(0)
    if os.access(path, os.R_OK):  # root reads everything: the mode cannot refuse, so reading must work
        GGUFFile.open(path).close()
    else:
        refused(path, e.FileAccessError, "Permission denied")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"G", "not a GGUF file"),
        (b"\0" * 100, "not a GGUF file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"<!doctype html><html>", "web page"),
        (b"PK\x03\x04rest", "PyTorch"),
        (b"tjgg" + bytes(40), "before GGUF"),
        (b"FUGG" + bytes(40), "big-endian"),
    ],
)
def test_other_kinds_of_file(write: Write, content: bytes, words: str) -> None:
    refused(write(content), e.GGUFError, words)


def test_versions_and_byte_order(write: Write) -> None:
    for version in (0, 1, 4, 2**31 + 1, 2**32 - 1):
        refused(write(build.file(version=version)), e.GGUFError, f"version {version}")
    refused(write(b"GGUF" + struct.pack(">IQQ", 3, 1, 1) + bytes(50)), e.GGUFError, "big-endian")


# ---------------------------------------------------------------- counts and lengths


def test_truncation_names_what_is_cut(write: Write) -> None:
    """At every 7th byte; fuzzing takes every one."""
    whole = build.small()
    for size in range(4, len(whole), 7):
        refused(write(whole[:size]), e.GGUFError, f"ends at byte {size}")


@pytest.mark.parametrize("count", [limits.MAX_KEYS + 1, HUGE, 2**64 - 1])
def test_counts_of_keys_and_tensors(write: Write, count: int) -> None:
    refused(write(build.file(n_keys=count)), e.GGUFError, f"{count} metadata keys", "byte 16")
    refused(write(build.file(n_tensors=count)), e.GGUFError, f"{count} tensors", "byte 8")


def test_counts_within_the_limits_but_not_in_the_file(write: Write) -> None:
    refused(write(build.file(n_keys=60_000)), e.GGUFError, "metadata key 1 of 60000")
    refused(write(build.file(n_tensors=60_000)), e.GGUFError, "tensor 1 of 60000")


@pytest.mark.parametrize("length", [1000, HUGE, 2**63, 2**64 - 1])
@pytest.mark.parametrize(
    "make",
    [
        lambda n: [build.text("k", n)],
        lambda n: [build.key("k", build.U32.pack(STRING) + build.text("v", n))],
        lambda n: [build.key("k", build.array(STRING, [], n))],
        lambda n: [build.key("k", build.array(U8, [], n))],
        lambda n: [build.key("k", build.array(ValueType.FLOAT64, [], n))],
        lambda n: [build.key("k", build.array(ARRAY, [], n))],
        lambda n: [build.key("k", build.array(STRING, [build.text("s", n), build.text("t")]))],
        lambda n: [build.key("k", build.array(ARRAY, [build.array_body(U8, [], n)]))],
    ],
    ids=["key", "string", "strings", "bytes", "doubles", "arrays", "string in array", "inner array"],
)
def test_lengths_past_the_end(write: Write, make: Callable[[int], list[bytes]], length: int) -> None:
    path = write(build.file(make(length)) + bytes(100))
    with pytest.raises(e.GGUFError, match=r"ends at byte"):
        GGUFFile.open(path)


def test_lengths_past_the_limits_where_the_file_has_the_bytes(tmp_path: Path) -> None:
    """Sparse files really are as long as they say, so only the limits stand against them."""
    path = tmp_path / "sparse.gguf"

    def sparse(content: bytes, kind: type[GGUFError], *words: str) -> None:
        path.write_bytes(content)
        os.truncate(path, 1 << 40)
        refused(path, kind, *words)

    sparse(build.file([build.text("k", 70_000)]), e.GGUFError, "70000 bytes long, the limit is 65535")
    sparse(build.file([build.key("k", build.U32.pack(STRING) + build.text("v", 1 << 39))]), e.GGUFError)
    sparse(build.file([build.key("k", build.array(U8, [], 1 << 39))]), e.GGUFError)
    many = limits.MAX_STRINGS // 2 + 1
    sparse(
        build.file([build.key("k", build.array(STRING, [], 2 * many))]),
        e.GGUFError,
        f"{2 * many} strings",
    )
    two = [build.key(name, build.array(STRING, [bytes(8 * many)], many)) for name in "ab"]
    sparse(build.file(two), e.GGUFError, f"'b' has {many} strings")
    sparse(build.file([build.key("k", build.array(ARRAY, [], 1 << 17))]), e.GGUFError, "131072 of them")
    sparse(build.file(n_keys=2), e.GGUFError, "'' twice")
    sparse(build.file(n_tensors=2), e.GGUFError, "'' twice")
    sparse(build.file(tensors=[build.text("t", 5000)]), e.GGUFError, "the limit is 1024")
    names = [build.key(f"{i:060000d}", b"\0\0\0\0\0") for i in range(300)]
    sparse(build.file(names), e.GGUFError, "names", "metadata key 280 of 300")


def test_the_limit_of_strings_itself_is_taken(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_STRINGS", 5)
    two = [build.key("a", build.strings(["x"] * 2)), build.key("b", build.strings(["y"] * 3))]
    with GGUFFile.open(write(build.file(two))) as file:
        assert [list(file.metadata[name]) for name in "ab"] == [["x"] * 2, ["y"] * 3]
    refused(write(build.file([*two, build.key("c", build.strings(["z"]))])), e.GGUFError, "'c' has 1 strings")


def test_arrays_nested_too_deep_or_in_a_circle(write: Write) -> None:
    def nested(depth: int) -> bytes:
        body = build.array_body(U8, [b"\7"])
        for _ in range(depth - 1):
            body = build.array_body(ARRAY, [body])
        return build.file([build.key("k", build.U32.pack(ARRAY) + body)])

    with GGUFFile.open(write(nested(limits.MAX_DEPTH))) as file:
        value = file.metadata["k"]
        for _ in range(limits.MAX_DEPTH - 1):
            (value,) = value
        assert value.tolist() == [7]
    for depth in (limits.MAX_DEPTH + 1, 1000):
        refused(write(nested(depth)), e.GGUFError, "nests arrays 9 deep")
    # An array whose header repeats for ever, as a cycle would look in a format without pointers.
    endless = build.array(ARRAY, [build.U32.pack(ARRAY) + build.U64.pack(1)] * 10_000, 1)
    refused(write(build.file([build.key("k", endless)])), e.GGUFError, "deep")


# ---------------------------------------------------------------- metadata


def test_value_types_out_of_range(write: Write) -> None:
    for number in (13, 255, 2**32 - 1):
        bad = build.key("k", build.U32.pack(number) + bytes(20))
        refused(write(build.file([bad])), e.GGUFError, f"value type {number}", "byte 33")
        refused(
            write(build.file([build.key("k", build.array(number, [bytes(20)]))])),
            e.GGUFError,
            str(number),
        )


def test_text_that_is_not_utf8(write: Write) -> None:
    good = build.key("a", build.u32(1))
    refused(
        write(build.file([good, build.key(b"b\xff", build.u32(1))])),
        e.GGUFError,
        "metadata key 2",
        "0xff",
    )
    refused(
        write(build.file([build.key("k", build.string(b"ab\x80"))])),
        e.GGUFError,
        "'k'",
        "0x80",
        "byte 47",
    )
    long = [b"x%d" % i for i in range(9000)]
    at = len(build.file([build.key("k", build.strings(long[:7000]))])) + 8 + 1
    long[7000] = b"q\xc3"  # a character cut off at the end of a string
    refused(
        write(build.file([build.key("k", build.strings(long))])),
        e.GGUFError,
        "string 7000 of",
        f"byte {at}",
    )
    refused(write(build.file([], [build.tensor(b"\xfe", [1], 0, 0)], bytes(4))), e.GGUFError, "tensor 1")
    surrogate = "\ud800".encode("utf-8", "surrogatepass")
    refused(write(build.file([build.key("k", build.string(surrogate))])), e.GGUFError, "0xed")


def test_bools_that_are_neither(write: Write) -> None:
    for value in (2, 255):
        raw = bytes([value])
        path = write(build.file([build.key("k", build.U32.pack(ValueType.BOOL) + raw)]))
        refused(path, e.GGUFError, f"byte {value}", "0 or 1")
        path = write(build.file([build.key("k", build.array(ValueType.BOOL, [b"\1", b"\0", raw]))]))
        refused(path, e.GGUFError, "item 2", f"byte {value}")


def test_keys_and_tensors_given_twice(write: Write) -> None:
    keys = [build.key("dup", build.u32(1)), build.key("x", build.u32(1)), build.key("dup", build.string("2"))]
    refused(write(build.file(keys)), e.GGUFError, "'dup' twice")
    tensors = [build.tensor("w", [4], 0, 0), build.tensor("w", [4], 0, 32)]
    refused(write(build.file([], tensors, bytes(64))), e.GGUFError, "'w' twice")


@pytest.mark.parametrize("value", [0, 3, 48, 2**31, 2**32 - 1])
def test_alignment_that_is_no_power_of_two(write: Write, value: int) -> None:
    path = write(build.file([build.key("general.alignment", build.u32(value))]))
    refused(path, e.GGUFError, f"alignment is {value}")


def test_alignment_and_architecture_of_the_wrong_type(write: Write) -> None:
    for value in (build.string("32"), build.scalar(ValueType.UINT64, "Q", 32), build.array(U8, [b"\x20"])):
        path = write(build.file([build.key("general.alignment", value)]))
        refused(path, e.GGUFError, "general.alignment", "uint32")
    with (
        GGUFFile.open(write(build.file([build.key("general.architecture", build.u32(5))]))) as file,
        pytest.raises(e.GGUFError, match="holds 5, where a string is needed"),
    ):
        _ = file.architecture


def test_hostile_names_stay_one_line_in_messages(write: Write) -> None:
    name = "a\nb\x1b[31m" + "z" * 5000
    keys = [build.key(name, build.u32(1))] * 2
    assert "a\\nb\\x1b[31m" in str(refused(write(build.file(keys)), e.GGUFError))


# ---------------------------------------------------------------- tensors


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (build.tensor("w", [0], 0, 0), "no dimension may be 0"),
        (build.tensor("w", [32, 0], 8, 0), "shape 0x32"),
        (build.tensor("w", [2**32, 2**32], 0, 0), "more than 2^63 elements"),
        (build.tensor("w", [2**63], 0, 0), "more than 2^63 elements"),
        (build.tensor("w", [2**64 - 32, 2**64 - 1, 2**64 - 1, 2], 8, 0), "more than 2^63 elements"),
        (build.tensor("w", [1] * 5, 0, 0), "5 dimensions, the format allows 4"),
        (build.tensor("w", [], 0, 0, n_dims=2**32 - 1), "4294967295 dimensions"),
        (build.tensor("w", [33], 8, 0), "rows of 33 elements, not a multiple of the 32 of a Q8_0 block"),
        (build.tensor("w", [128, 4], 12, 0), "256 of a Q4_K block"),
        (build.tensor("w", [4], 0, 8), "offset 8 of the data section, not a multiple of the alignment 32"),
        (build.tensor("w", [4], 0, 2**64 - 1), "not a multiple of the alignment"),
    ],
)
def test_tensor_entries(write: Write, entry: bytes, words: str) -> None:
    refused(write(build.file([], [entry], bytes(256))), e.GGUFError, "tensor 'w'", words)


@pytest.mark.parametrize("number", [43, 1000, 2**32 - 1])
def test_tensor_types_nobody_knows(write: Write, number: int) -> None:
    path = write(build.file([], [build.tensor("w", [32], number, 0)], bytes(256)))
    refused(path, e.UnsupportedTensorType, f"type number {number}", "'w'")


@pytest.mark.parametrize(
    ("dims", "kind", "offset"),
    [
        ([65], 0, 0),
        ([64], 0, 32),
        ([1], 0, 256),
        ([1], 0, HUGE),
        ([1], 0, 2**64 - 32),
        ([2**40, 2**20], 0, 0),
    ],
)
def test_tensors_past_the_end(write: Write, dims: list[int], kind: int, offset: int) -> None:
    path = write(build.file([], [build.tensor("w", dims, kind, offset)], bytes(256)))
    refused(path, e.GGUFError, "tensor 'w' takes bytes", "ends at byte")


def test_the_last_byte_counts(write: Write) -> None:
    content = build.file([], [build.tensor("w", [64], 0, 0)], bytes(256))
    with GGUFFile.open(write(content)) as file:
        assert file.raw("w").size == 256
    refused(write(content[:-1]), e.GGUFError, "'w'")


def test_overlapping_tensors(write: Write) -> None:
    a, b, c = (build.tensor(n, [24], 0, at) for n, at in (("a", 128), ("b", 0), ("c", 64)))
    refused(write(build.file([], [a, b, c], bytes(256))), e.GGUFError, "'b' and 'c' overlap")
    twins = [build.tensor("a", [8], 0, 0), build.tensor("b", [8], 0, 0)]
    refused(write(build.file([], twins, bytes(64))), e.GGUFError, "overlap")
    neighbours = [build.tensor("a", [8], 0, 0), build.tensor("b", [8], 0, 32)]
    GGUFFile.open(write(build.file([], neighbours, bytes(64)))).close()


# ---------------------------------------------------------------- a file that changes


def test_file_shrunk_after_open(write: Write) -> None:
    content = build.small()
    path = write(content)
    with GGUFFile.open(path) as file:
        os.truncate(path, len(content) - 1)
        with pytest.raises(e.FileChanged, match=f"was {len(content)} bytes long when opened and is now"):
            file.raw("future.weight")
        os.truncate(path, 100)
        for action in (lambda: file.raw("norm.weight"), lambda: file.metadata["tokens"]):
            with pytest.raises(e.FileChanged, match="is now 100"):
                action()


def test_file_rewritten_in_place_after_open(write: Write) -> None:
    """Values found at opening are checked again when decoded: other bytes may lie there by then."""
    content = build.small()
    path = write(content)
    for filler in (b"\xff", b"\0", b"\x09", b"\x08", b"\x07"):
        path.write_bytes(content)
        with GGUFFile.open(path) as file:
            path.write_bytes(content[:4] + filler * (len(content) - 4))
            for key in file.metadata:
                try:
                    file.metadata[key]
                except GGUFError as error:
                    check(error)


def test_hostile_sizes_take_no_memory(tmp_path: Path) -> None:
    """What all the huge files together may add to the peak of this process, in KiB."""
    path = tmp_path / "sparse.gguf"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for keys in (
        [build.key("k", build.array(U8, [], 1 << 38))],
        [build.key("k", build.array(STRING, [], 1 << 37))],
        [build.key("k", build.U32.pack(STRING) + build.text("", 1 << 38))],
        [build.key("k", build.array(STRING, [build.text("", 1 << 28)] * 3))],
    ):
        path.write_bytes(build.file(keys))
        os.truncate(path, 1 << 41)
        refused(path, e.GGUFError)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10


def test_the_slowest_permitted_arrays_are_still_quick(write: Write) -> None:
    """Strings that defeat the fast walk: empty, long, with NULs, in bad mixtures, hundreds of thousands."""
    textures = [
        [""] * 200_000,
        ["\0"] * 100_000,
        ["\0\0\0\0\0\0\0\0" * 2] * 50_000,
        ["a" * 256] * 25_000,
        ["b", "", "c" * 300] * 25_000,
        ["\x03\0\0\0\0\0\0\0abc"] * 50_000,
    ]
    for texture in textures:
        packed = build.text(texture[0]) * len(texture) if len(set(texture)) == 1 else None
        body = packed or b"".join(build.text(t) for t in texture[:3]) * (len(texture) // 3)
        path = write(build.file([build.key("k", build.array(STRING, [body], len(texture)))]))
        start = time.process_time()
        with GGUFFile.open(path) as file:
            opened = time.process_time() - start
            assert file.metadata["k"] == texture
        assert opened < 0.5
        assert time.process_time() - start < 1.5
