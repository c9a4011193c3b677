"""`zinc kernels`: building, listing, showing, disassembling."""

from __future__ import annotations

import errno
import json
import os
import re
from dataclasses import replace

import pytest

from zinc_rt.kernels.rdna.catalogue import KERNELS
from zinc_rt.kernels.zrt import read_file, read_folder, write_file

FEW = ("copy", "argmax_keys", "dmmv_rows_q8_0")


@pytest.fixture
def folder(zinc, tmp_path):
    assert zinc("kernels", "build", tmp_path / "few", *FEW).code == 0
    return tmp_path / "few"


def test_build(zinc, folder):
    assert sorted(p.name for p in folder.iterdir()) == sorted(f"{name}.zrt" for name in FEW)
    kernels = read_folder(folder)
    assert set(kernels) == set(FEW)
    assert {k.target for k in kernels.values()} == {"gfx1201"}
    size = sum(p.stat().st_size for p in folder.iterdir())
    again = zinc("kernels", "build", folder, *FEW)
    assert again.out == f"3 kernels for gfx1201 in {folder}: {size} bytes\n"
    tree = json.loads(zinc("kernels", "build", folder, "copy", "--json").out)
    assert tree == {
        "folder": str(folder),
        "target": "gfx1201",
        "files": {"copy.zrt": (folder / "copy.zrt").stat().st_size},
    }


def test_all_kernels_can_be_built_ahead_of_time_and_the_same_everywhere(zinc, tmp_path):
    for name in ("a", "b"):
        assert zinc("kernels", "build", tmp_path / name).code == 0
    files = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert files == sorted(f"{name}.zrt" for name in KERNELS)
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_other_gpus(zinc, tmp_path):
    assert zinc("kernels", "build", tmp_path, "copy", "--target", "gfx1100").code == 0
    assert read_file(tmp_path / "copy.zrt").target == "gfx1100"
    shown = zinc("kernels", "show", tmp_path / "copy.zrt").out
    assert "for gfx1100" in shown
    outcome = zinc("kernels", "disasm", tmp_path / "copy.zrt")
    assert outcome.code == 0
    assert "s_waitcnt vmcnt(0)" in outcome.out, "gfx12 has a wait for each counter instead"


def test_what_is_compiled_is_kept(zinc, tmp_path):
    first = zinc("kernels", "show", "copy", "--cache-dir", tmp_path)
    assert first.err == "compiling 1 kernels for gfx1201\n"
    second = zinc("kernels", "show", "copy", "--cache-dir", tmp_path)
    assert second.err == ""
    assert second.out == first.out


def test_list(zinc, folder):
    lines = zinc("kernels", "list", folder, "argmax_top2", folder / "copy.zrt").out.splitlines()
    assert lines[0].split() == ["kernel", "for", "code", "VGPRs", "LDS", "scratch", "wave", "group", "waves/SIMD"]
    names = [line.split()[0] for line in lines[1:]]
    assert names == [*(str(folder / f"{n}.zrt") for n in sorted(FEW)), "argmax_top2", str(folder / "copy.zrt")]
    rows = {row["name"]: row for row in json.loads(zinc("kernels", "list", "--json").out)}
    assert list(rows) == list(KERNELS)
    wide = rows["dmmv_rows_q8_0"]
    assert (wide["wave"], wide["workgroup"], wide["target"], wide["scratch_bytes"]) == (64, 64, "gfx1201", 0)
    kernel = read_file(folder / "dmmv_rows_q8_0.zrt")
    assert (wide["vgprs"], wide["code_bytes"], wide["occupancy"]) == (kernel.vgprs, kernel.size, kernel.occupancy)


def test_show(zinc, folder):
    kernel = read_file(folder / "copy.zrt")
    text = zinc("kernels", "show", "copy").out
    assert f"RSRC1      {kernel.rsrc1:#010x}  float_mode=0xf0" in text
    assert "user_sgpr=0x5" in text
    assert re.search(r"^s4 +n +u32$", text, re.M)
    (tree,) = json.loads(zinc("kernels", "show", folder / "copy.zrt", "--json").out)
    assert tree["rsrc2"] == f"{kernel.rsrc2:#010x}"
    assert tree["arguments"][2] == {"name": "n", "type": "u32", "dword": 4}
    assert tree["padded_bytes"] == len(kernel.code)


def test_disasm(zinc, folder):
    kernel = read_file(folder / "argmax_keys.zrt")
    text = zinc("kernels", "disasm", folder / "argmax_keys.zrt").out
    lines = [line for line in text.splitlines()[1:] if not line.endswith(":")]
    words = [word for line in lines for word in re.findall(r" ([0-9a-f]{8})(?= |$)", line[80:])]
    code = b"".join(bytes.fromhex(word)[::-1] for word in words)
    assert code == kernel.code[: kernel.size], "every byte is shown, in order"
    assert lines[-1].split()[1] == "s_endpgm"
    labels = set(re.findall(r"^(L\d+):$", text, re.M))
    assert labels
    assert set(re.findall(r"s_c?branch\w* (\w+)", text)) == labels
    (tree,) = json.loads(zinc("kernels", "disasm", "argmax_keys", "--json").out)
    assert [row["text"].split()[0] for row in tree["code"]] == [line.split()[1] for line in lines]


def test_code_that_is_none(zinc, folder):
    kernel = read_file(folder / "copy.zrt")
    write_file(folder / "copy.zrt", replace(kernel, code=b"\xff" * len(kernel.code)))
    outcome = zinc("kernels", "disasm", folder / "copy.zrt")
    assert (outcome.code, outcome.out) == (1, "")
    assert "0x0" in outcome.error


def test_files_win_only_where_no_kernel_has_the_name(zinc, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "copy").mkdir()
    assert "copy" in zinc("kernels", "list", "copy").out
    outcome = zinc("kernels", "list", "./copy")
    assert outcome.code == 2
    assert "holds no .zrt files" in outcome.error


def test_a_full_disk_leaves_everything_as_it_was(zinc, folder, monkeypatch):
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    real, left = os.fsync, [2]

    def full(descriptor):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    for place in (folder, folder.parent / "new"):
        left[0] = 2
        outcome = zinc("kernels", "build", place, *FEW, "argmax_top2")
        assert (outcome.code, outcome.out) == (1, "")
        assert "No space left on device; choose another folder or make room" in outcome.error
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    assert not (folder.parent / "new").exists()


def test_places_that_cannot_be_written(zinc, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"")
    outcome = zinc("kernels", "build", file / "below", "copy")
    assert outcome.code == 1
    assert f"cannot make {file / 'below'}" in outcome.error


def test_damaged_files(zinc, folder):
    path = folder / "copy.zrt"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    for action in ("list", "show", "disasm"):
        for place in (path, folder):
            outcome = zinc("kernels", action, place)
            assert (outcome.code, outcome.out) == (1, "")
            assert f"{path}: checksum is" in outcome.error
    path.write_bytes(b"GGUF" + bytes(200))
    assert "magic is 0x46554747; it must be 0x005a5254" in zinc("kernels", "show", path).error


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("kernels",), "Missing argument"),
        (("kernels", "make"), "build"),
        (("kernels", "build"), "build needs a folder"),
        (("kernels", "build", "copy"), "build needs a folder first: zinc kernels build FOLDER copy"),
        (("kernels", "show"), "show needs the name of a kernel or a .zrt file"),
        (("kernels", "disasm"), "disasm needs"),
        (("kernels", "show", "argmax_key"), "did you mean argmax_keys?"),
        (("kernels", "show", "zzzz"), "`zinc kernels list` has them all"),
        (("kernels", "list", "--target", "gfx900"), "--target is 'gfx900', it must be gfx"),
        (("kernels", "build", "pyproject.toml"), "is a file; build writes a folder"),
        (("kernels", "build", "somewhere", "nope"), "no kernel is named nope"),
    ],
)
def test_wrong_use_is_one_line_and_code_2(zinc, args, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    outcome = zinc(*args)
    assert outcome.code == 2
    assert text in outcome.error
    assert outcome.out == ""
    assert len(outcome.err.splitlines()) == 1
    assert not (tmp_path / "somewhere").exists()


def test_a_missing_file_fails(zinc):
    outcome = zinc("kernels", "show", "nowhere.zrt")
    assert outcome.code == 1
    assert "cannot read nowhere.zrt: No such file or directory" in outcome.error


def test_help_names_the_arguments(zinc):
    shown = zinc("kernels", "--help").out
    assert "\n  WHAT... " in shown
    assert "]..." not in shown.split("Arguments:")[1]
