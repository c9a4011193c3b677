"""Images: their file form under damage, and their way into executable memory."""

from __future__ import annotations

import ctypes
import gc
import json
import re
import struct
import subprocess
import sys
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lang.modules import CONSTANTS, CONSTANTS_EXPORTS, compiled, function
from zinc_rt.lang import pages
from zinc_rt.lang.errors import ImageError
from zinc_rt.lang.image import Image

# mov eax, edi; inc eax; ret
CODE = bytes.fromhex("89f8ffc0c3")
SMALL = Image(CODE, {"increment": 0}, "avx2", {"sizes": {"increment": 5}, "text": "ä"})
SMALL_BYTES = SMALL.to_bytes()
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 20) | st.floats() | st.text(max_size=3),
    lambda x: st.lists(x, max_size=2) | st.dictionaries(st.text(max_size=3), x, max_size=2),
    max_leaves=3,
)


def file_form(text: bytes, code: bytes) -> bytes:
    """Header with a checksum that holds, written from the description in image.py."""
    checksum = blake2b(text + code, digest_size=16).digest()
    return struct.pack("<8sIIQ16s", b"ZINCIMG\0", 2, len(text), len(code), checksum) + text + code


def test_file_form_comes_back() -> None:
    assert Image.from_bytes(SMALL_BYTES) == SMALL
    assert Image.from_bytes(SMALL_BYTES).to_bytes() == SMALL_BYTES


@given(st.integers(0, len(SMALL_BYTES) - 1))
def test_truncated_images_are_refused(length: int) -> None:
    with pytest.raises(ImageError):
        Image.from_bytes(SMALL_BYTES[:length])


@given(st.integers(0, len(SMALL_BYTES) - 1), st.integers(1, 255))
def test_a_changed_byte_is_noticed(place: int, change: int) -> None:
    data = bytearray(SMALL_BYTES)
    data[place] ^= change
    with pytest.raises(ImageError):
        Image.from_bytes(bytes(data))


@given(st.binary(), st.binary(), st.booleans())
def test_arbitrary_bytes_raise_nothing_else(head: bytes, tail: bytes, magic: bool) -> None:
    with pytest.raises(ImageError):
        Image.from_bytes((b"ZINCIMG\0" if magic else b"") + head + SMALL_BYTES[30:] + tail)


@given(st.binary(max_size=40) | JSON_VALUES.map(lambda v: json.dumps(v).encode()), st.binary(max_size=16))
def test_descriptions_of_another_form_are_refused(text: bytes, code: bytes) -> None:
    with pytest.raises(ImageError):
        Image.from_bytes(file_form(text, code))


@given(JSON_VALUES, JSON_VALUES, JSON_VALUES, st.binary(max_size=16))
def test_fields_of_another_type_are_refused(entries: Any, target: Any, meta: Any, code: bytes) -> None:
    text = json.dumps({"entries": entries, "target": target, "meta": meta}).encode()
    well_formed = (
        isinstance(entries, dict)
        and all(type(v) is int and 0 <= v < len(code) for v in entries.values())
        and isinstance(target, str)
        and isinstance(meta, dict)
    )
    if well_formed:
        assert Image.from_bytes(file_form(text, code)).code == code
    else:
        with pytest.raises(ImageError):
            Image.from_bytes(file_form(text, code))


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(ImageError):
        Image.from_bytes(file_form(b"[" * 200_000, b""))


@pytest.mark.parametrize("offset", [-1, 5, 1 << 40, True, 1.0, "0", None])
def test_entries_outside_the_code_are_refused(offset: object) -> None:
    text = json.dumps({"entries": {"f": offset}, "target": "avx2", "meta": {}}).encode()
    with pytest.raises(ImageError, match=r"entry 'f' .* outside its 5 bytes"):
        Image.from_bytes(file_form(text, CODE))


def test_another_format_is_named() -> None:
    data = bytearray(SMALL_BYTES)
    data[8] = 9
    with pytest.raises(ImageError, match="format 9; this release reads 2"):
        Image.from_bytes(bytes(data))


def test_loaded_code_runs() -> None:
    code = SMALL.load()
    assert function(code, "increment", ctypes.c_int, ctypes.c_int)(41) == 42


def test_an_unknown_function_names_the_known_ones() -> None:
    with pytest.raises(ImageError, match="no 'decrement'; it exports increment"):
        SMALL.load().address("decrement")


def mapping(address: int) -> str | None:
    """The permissions of the pages at `address`, None when nothing is there."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last, permissions = re.match(r"(\w+)-(\w+) (\S+)", line).groups()  # type: ignore[union-attr]
        if int(first, 16) <= address < int(last, 16):
            return permissions
    return None


@pytest.mark.parametrize("way", ["_by_protection", "_by_file"])
def test_pages_are_executable_never_writable_and_freed(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    chosen = getattr(pages, way)
    monkeypatch.setattr(pages, "_by_protection", chosen)
    code = SMALL.load()
    address = code.address("increment")
    assert mapping(address) == "r-xp"
    assert address % 4096 == 0
    assert function(code, "increment", ctypes.c_int, ctypes.c_int)(1) == 2
    del code
    gc.collect(1)  # what is young
    assert mapping(address) is None


def test_large_code_spans_pages() -> None:
    code = Image(bytes(10_000) + CODE, {"f": 10_000}, "avx2").load()
    assert code.pages.size == 12_288
    assert function(code, "f", ctypes.c_int, ctypes.c_int)(-1) == 0


UNDER_POLICY = """
import ctypes, sys
from zinc_rt.lang.image import Image
PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN = 65, 1  # linux/prctl.h, since Linux 6.3
if ctypes.CDLL(None).prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) != 0:
    print("old kernel 42")
else:
    code = Image(bytes.fromhex("89f8ffc0c3"), {"f": 0}, "avx2").load()
    print("policy", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(code.address("f"))(41))
"""


def test_runs_where_memory_may_not_become_executable() -> None:
    done = subprocess.run([sys.executable, "-c", UNDER_POLICY], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.endswith("42\n"), done.stderr


def test_a_refusal_says_what_may_be_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_by_protection", lambda *_: 13)
    monkeypatch.setattr(pages, "_by_file", lambda *_: 1)
    with pytest.raises(ImageError, match=r"5 bytes .*Operation not permitted.*SELinux.*reference kernels"):
        SMALL.load()
    monkeypatch.setattr(pages, "_by_protection", lambda *_: 12)
    with pytest.raises(ImageError, match=r"5 bytes of compiled code: Cannot allocate memory$"):
        SMALL.load()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("aarch64", "needs aarch64"),
        ("gfx1201", "gfx1201; this machine's processor cannot run it"),
        ("z80", "'z80', which this release does not know"),
    ],
)
def test_code_for_another_machine_is_not_loaded(target: str, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        Image(CODE, {}, target).load()


def test_code_works_wherever_it_lies() -> None:
    image = Image.from_bytes(compiled(CONSTANTS, *CONSTANTS_EXPORTS).to_bytes())
    loaded = [image.load() for _ in range(3)]
    assert len({code.pages.address for code in loaded}) == 3
    for code in loaded:
        assert function(code, "pick", ctypes.c_float, ctypes.c_float, ctypes.c_int)(3.0, 4) == 1.0
        assert function(code, "itself", ctypes.c_void_p)() == code.address("pick")
