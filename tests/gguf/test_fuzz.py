"""Damaged files by the thousand: only a GGUFError or a complete read, within a time and a memory bound."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.gguf import build
from tests.gguf.touch import MemoryFile
from zinc_rt.gguf import GGMLType, GGUFFile, ValueType
from zinc_rt.gguf.errors import GGUFError

SMALL = build.small()
BAD = b"\xff"  # not UTF-8
HEADER = SMALL.index(bytes(i % 251 for i in range(40)))  # where the tensor data start
quick = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def file() -> Iterator[MemoryFile]:
    file = MemoryFile()
    yield file
    file.close()


def test_the_seed_is_sound(file: MemoryFile) -> None:
    assert file.touch(SMALL) is None


def test_truncation_at_every_byte(file: MemoryFile) -> None:
    for size in range(len(SMALL)):
        assert file.touch(SMALL[:size]) is not None, size


share = pytest.mark.parametrize("share", [3, pytest.param(1, marks=pytest.mark.slow)])
"""One of so many damages by default; all of them where slow tests run. No field has so few that none is left."""


@pytest.mark.parametrize("share", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_every_bit_of_the_header_flipped(file: MemoryFile, share: int) -> None:
    """Most flips in names and values are harmless; each must be one or the other."""
    refusals = 0
    for bit in range(0, 8 * HEADER, share):
        if SMALL[bit // 8 - 8 : bit // 8] == b"xxxxxxxx":  # one place in a long string is like another
            continue
        content = bytearray(SMALL)
        content[bit // 8] ^= 1 << bit % 8
        refusals += file.touch(content) is not None
    assert 8 * HEADER * 0.2 < refusals * share < 8 * HEADER * 0.9


@share
def test_every_byte_of_the_header_made_extreme(file: MemoryFile, share: int) -> None:
    places = [at for at in range(HEADER) if SMALL[at - 8 : at] != b"xxxxxxxx"]
    for at, value in list(product(places, (0, 0x7F, 0x80, 0xFF)))[::share]:
        content = bytearray(SMALL)
        content[at] = value
        file.touch(content)


@share
def test_every_aligned_and_unaligned_word_replaced(file: MemoryFile, share: int) -> None:
    places = [at for at in range(4, HEADER - 8) if SMALL[at - 8 : at] != b"xxxxxxxx"]
    for at, word in list(product(places, (2**64 - 1, 2**63, 2**60, 2**32)))[::share]:
        content = bytearray(SMALL)
        content[at : at + 8] = struct.pack("<Q", word)
        file.touch(content)


@quick
@given(data=st.data())
def test_several_bits_flipped(file: MemoryFile, data: st.DataObject) -> None:
    content = bytearray(SMALL)
    for bit in data.draw(st.lists(st.integers(32, 8 * len(SMALL) - 1), min_size=2, max_size=12)):
        content[bit // 8] ^= 1 << bit % 8
    file.touch(content)


@quick
@given(
    cuts=st.lists(st.tuples(st.integers(0, len(SMALL)), st.integers(0, len(SMALL))), min_size=1, max_size=5),
    junk=st.binary(max_size=40),
    keep_head=st.booleans(),
)
def test_splices(file: MemoryFile, cuts: list[tuple[int, int]], junk: bytes, keep_head: bool) -> None:
    """Pieces of the file in any order, repeated or missing, with junk in between."""
    pieces = [SMALL[min(pair) : max(pair)] for pair in cuts]
    file.touch((SMALL[:24] if keep_head else b"") + junk.join(pieces))


COUNTS = st.integers(0, 6) | st.sampled_from([2**16, 2**31, 2**32, 2**60, 2**63, 2**64 - 1])
VALUE_TYPES = st.sampled_from([*ValueType, 13, 2**32 - 1])


def bodies(depth: int) -> st.SearchStrategy[bytes]:
    """Array bodies whose count, type and content need not agree."""
    items = st.binary(max_size=24) | st.text(max_size=5).map(build.text)
    if depth:
        items |= bodies(depth - 1)
    return st.builds(
        lambda kind, parts, count: build.array_body(kind, parts, len(parts) if count is None else count),
        VALUE_TYPES,
        st.lists(items, max_size=4),
        st.none() | COUNTS,
    )


VALUES = st.builds(lambda kind, raw: build.U32.pack(kind) + raw, VALUE_TYPES, st.binary(max_size=16)) | bodies(3).map(
    lambda body: build.U32.pack(ValueType.ARRAY) + body
)
KEYS = st.builds(
    build.key,
    st.sampled_from(["general.alignment", "a", "b"]) | st.binary(max_size=6),
    VALUES | st.just(build.u32(8)),
)
DIMS = st.lists(st.integers(0, 300) | st.sampled_from([32, 256, 2**32, 2**63, 2**64 - 1]), max_size=5)
TENSORS = st.builds(
    build.tensor,
    st.sampled_from("xyz") | st.binary(max_size=6),
    DIMS,
    st.sampled_from([int(t) for t in GGMLType] + [42, 2**32 - 1]),
    st.sampled_from([0, 32, 64, 2**10, 2**60, 2**64 - 32]) | st.integers(0, 600),
)


@quick
@given(
    keys=st.lists(KEYS, max_size=4),
    tensors=st.lists(TENSORS, max_size=4),
    counts=st.tuples(st.none() | COUNTS, st.none() | COUNTS),
    size=st.integers(0, 1000),
)
@example(
    keys=[build.key("a", build.array(ValueType.ARRAY, [], 2**64 - 1))],
    tensors=[],
    counts=(None, 0),
    size=0,
)
def test_files_built_from_nonsense(
    file: MemoryFile, keys: list[bytes], tensors: list[bytes], counts: tuple[int | None, int | None], size: int
) -> None:
    file.touch(build.file(keys, tensors, bytes(size), n_keys=counts[0], n_tensors=counts[1]))


@quick
@given(
    strings=st.lists(
        st.text(max_size=12).map(str.encode)
        | st.sampled_from([b"", b"\0", b"\0" * 8, b"\2" + b"\0" * 7, b"x" * 255, b"y" * 256, BAD]),
        max_size=60,
    ),
    copies=st.sampled_from([1, 1, 40, 400]),
)
def test_string_arrays_against_a_plain_loop(file: MemoryFile, strings: list[bytes], copies: int) -> None:
    strings = [raw for raw in strings for _ in range(copies)] + [b"last"]
    file.write_bytes(build.file([build.key("k", build.strings(strings)), build.key("end", build.u32(9))]))
    with GGUFFile.open(file.path) as opened:
        assert opened.metadata["end"] == 9
        if BAD in strings:
            with pytest.raises(GGUFError, match=f"string {strings.index(BAD)} of"):
                opened.metadata["k"]
        else:
            assert opened.metadata["k"] == [raw.decode() for raw in strings]


@quick
@given(content=st.binary(max_size=300), head=st.sampled_from([b"", b"GGUF", b"GGUF\3\0\0\0", b"GGUF\2\0\0\0"]))
def test_noise(file: MemoryFile, content: bytes, head: bytes) -> None:
    file.touch(head + content)


WORKER = """
import random, resource, time
from tests.gguf.build import small
from tests.gguf.touch import MemoryFile
content, file, rng = small(), MemoryFile(), random.Random(7)
file.touch(content)
base, slowest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0.0
for _ in range(1000):
    bad = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(4, len(bad) - 8)
        bad[at : at + rng.randint(1, 8)] = rng.randbytes(rng.randint(0, 8))
    start = time.process_time()
    file.touch(bad)
    slowest = max(slowest, time.process_time() - start)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base, slowest)
"""


def test_memory_and_time_stay_bounded() -> None:
    """In a process of its own, so that the peak is that of the reader."""
    done = subprocess.run([sys.executable, "-c", WORKER], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    memory, slowest = done.stdout.split()
    assert int(memory) < 16 << 10  # KiB above a single sound file
    assert float(slowest) < 0.5  # seconds of processor time
