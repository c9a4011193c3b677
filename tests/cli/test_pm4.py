"""`zinc pm4 decode`: streams from the command line, files, standard input."""

from __future__ import annotations

import json
import struct

import pytest

WORDS = [0xC0001000, 0, 0xC0027600, 0x244, 0xAABBCCDD, 0x11223344]
TEXT = (
    "     0  C0001000  NOP 2 dwords\n"
    "     2  C0027600  SET_SH_REG COMPUTE_USER_DATA_4=0xaabbccdd COMPUTE_USER_DATA_5=0x11223344\n"
)


@pytest.fixture
def binary(tmp_path):
    path = tmp_path / "stream.bin"
    path.write_bytes(struct.pack("<6I", *WORDS))
    return path


def test_hexadecimal_arguments(zinc):
    for words in (
        [f"{word:08X}" for word in WORDS],
        [f"{word:#x}" for word in WORDS],
        [",".join(f"{word:x}" for word in WORDS)],
        [",".join(f"{word:08x}" for word in WORDS * 60)],
    ):
        outcome = zinc("pm4", "decode", *words)
        assert outcome.code == 0
        assert outcome.err == ""
        assert outcome.out.startswith(TEXT)


def test_files(zinc, binary, tmp_path):
    assert zinc("pm4", "decode", binary).out == TEXT
    text = tmp_path / "stream.txt"
    text.write_text("# a comment\nC0001000 0  # NOP\n0xC0027600, 0x244,\nAABBCCDD\n11223344\n")
    assert zinc("pm4", "decode", text).out == TEXT
    assert zinc("pm4", "decode", text, "--format", "hex").out == TEXT


def test_standard_input(zinc, binary):
    assert zinc("pm4", "decode", "-", stdin=binary.read_bytes()).out == TEXT
    assert zinc("pm4", "decode", "-", stdin="C0001000 0 C0027600 244 AABBCCDD 11223344").out == TEXT


def test_text_that_is_meant_as_binary(zinc):
    outcome = zinc("pm4", "decode", "-", "--format", "binary", stdin="c000")
    assert "malformed [0x30303063]" in outcome.out


def test_json(zinc):
    tree = json.loads(zinc("pm4", "decode", "--json", *[f"{word:x}" for word in [*WORDS, 0x80000000]]).out)
    assert [packet["name"] for packet in tree] == ["NOP", "SET_SH_REG", "malformed"]
    assert tree[1]["offset"] == 2
    assert tree[1]["words"] == WORDS[2:]
    assert tree[1]["fields"]["register"] == 0x244
    assert tree[1]["fields"]["values"] == WORDS[4:]
    assert tree[1]["problems"] == []
    assert tree[2]["opcode"] is None
    assert tree[2]["problems"] == ["a header of type 2, not 3"]


def test_generations(zinc):
    words = ["C0017600", "212", "200000"]
    assert "wg_rr_en=1" in zinc("pm4", "decode", *words).out
    assert "dx10_clamp=1" in zinc("pm4", "decode", "--gfx", "11", *words).out


def test_malformed_packets_are_shown_and_counted(zinc):
    outcome = zinc("pm4", "decode", "C0001000", "0", "80000000", "C0FF1000")
    assert outcome.code == 0
    assert outcome.out.count("!!") == 2
    assert outcome.err == "malformed: 2 of 3 packets\n"


@pytest.mark.parametrize(
    ("args", "stdin", "text"),
    [
        (("pm4", "decode", "no such file"), "", "No such file"),
        (("pm4", "decode", "C0001000", "xyz"), "", "'xyz'; a dword is one to eight"),
        (("pm4", "decode", "C00010000", "0"), "", "'C00010000'"),
        (("pm4", "decode", "-"), "", "standard input is empty"),
        (("pm4", "decode", "-"), b"\xff\xfe\xfd", "3 bytes; a stream of dwords has a multiple of 4"),
        (("pm4", "decode", "-", "--format", "hex"), "zz", "'zz'"),
        (("pm4", "decode", "-", "--format", "hex"), "# nothing", "holds no dwords"),
        (("pm4", "decode", "-", "--format", "hex"), b"\xff\xff", "one to eight hexadecimal"),
        (("pm4", "decode", "."), "", "cannot read .: Is a directory"),
        (("pm4", "encode", "0"), "", "decode"),
        (("pm4", "decode"), "", "Missing argument"),
        (("pm4", "decode", "--gfx", "9", "0"), "", "--gfx"),
    ],
)
def test_wrong_use_is_one_line_and_code_2(zinc, args, stdin, text):
    outcome = zinc(*args, stdin=stdin)
    assert outcome.code == 2
    assert text in outcome.error
    assert outcome.out == ""
    assert len(outcome.err.splitlines()) == 1
