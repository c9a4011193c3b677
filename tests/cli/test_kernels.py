"""`zinc kernels`: listing, showing, disassembling."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from zinc_rt.cli import kernels as verb
from zinc_rt.kernels.amd.catalogue import KERNELS
from zinc_rt.lang import gpu_library
from zinc_rt.lang.amd import AmdKernel, for_amd
from zinc_rt.lang.gpu_library import gpu_kernels


def compiled(name: str, target: str = "gfx1201") -> AmdKernel:
    return for_amd(gpu_kernels({name: KERNELS[name].spec}, target)[name])


def test_other_gpus(zinc):
    assert "for gfx1100" in zinc("kernels", "show", "copy", "--target", "gfx1100").out
    outcome = zinc("kernels", "disasm", "copy", "--target", "gfx1100")
    assert outcome.code == 0
    assert "s_waitcnt vmcnt(0)" in outcome.out, "gfx12 has a wait for each counter instead"


@pytest.mark.parametrize(("target", "instruction"), [("ptx", "ld.global.b32"), ("spirv", "OpLoad")])
def test_what_drivers_compile_further(zinc, target, instruction):
    text = zinc("kernels", "list", "move", "--target", target).out
    assert text.splitlines()[0].split() == ["kernel", "for", "code", "wave", "group"]
    (tree,) = json.loads(zinc("kernels", "show", "move", "--target", target, "--json").out)
    assert (tree["wave"], tree["workgroup"]) == (32, KERNELS["move"].spec.function.workgroup)
    assert [row["name"] for row in tree["arguments"]] == ["x", "y", "n"]
    shown = zinc("kernels", "show", "move", "--target", target).out
    assert f"code       {tree['code_bytes']} bytes, which the driver compiles further" in shown
    assert re.search(r"^2 +n +u32$", shown, re.M)
    text = zinc("kernels", "disasm", "move", "--target", target).out
    assert text.startswith("move:\n")
    assert instruction in text
    (tree,) = json.loads(zinc("kernels", "disasm", "move", "--target", target, "--json").out)
    assert instruction in "\n".join(row["text"] for row in tree["code"])


def test_what_is_compiled_is_kept(zinc, tmp_path):
    first = zinc("kernels", "show", "copy", "--cache-dir", tmp_path)
    assert first.err == "compiling 1 kernel for gfx1201\n"
    second = zinc("kernels", "show", "copy", "--cache-dir", tmp_path)
    assert second.err == ""
    assert second.out == first.out


def test_without_a_cache_it_goes_on_and_says_so_once(zinc, tmp_path):
    (tmp_path / "file").write_text("")
    outcome = zinc("kernels", "show", "copy", "--cache-dir", tmp_path / "file")
    assert outcome.code == 0
    assert outcome.err.count("going on without it") == 1
    assert "compiling" in outcome.err


def test_list(zinc, monkeypatch):
    lines = zinc("kernels", "list", "copy", "argmax_top2", "copy").out.splitlines()
    assert lines[0].split() == ["kernel", "for", "code", "VGPRs", "LDS", "scratch", "wave", "group", "waves/SIMD"]
    assert [line.split()[0] for line in lines[1:]] == ["copy", "argmax_top2", "copy"]
    (wide,) = json.loads(zinc("kernels", "list", "dmmv_rows_q8_0", "--json").out)
    assert (wide["wave"], wide["workgroup"], wide["target"], wide["scratch_bytes"]) == (64, 64, "gfx1201", 0)
    kernel = compiled("dmmv_rows_q8_0")
    assert (wide["vgprs"], wide["code_bytes"], wide["occupancy"]) == (kernel.vgprs, kernel.size, kernel.occupancy)
    # All of them without names; tests/kernels/gpu/test_code.py compiles them.
    monkeypatch.setattr(gpu_library, "gpu_kernels", lambda specs, *_, **__: dict.fromkeys(specs, kernel))
    assert [row["name"] for row in json.loads(zinc("kernels", "list", "--json").out)] == list(KERNELS)


def test_show(zinc):
    kernel = compiled("copy")
    text = zinc("kernels", "show", "copy").out
    assert f"RSRC1      {kernel.rsrc1:#010x}  float_mode=0xf0" in text
    assert "user_sgpr=0x5" in text
    assert re.search(r"^s4 +n +u32$", text, re.M)
    (tree,) = json.loads(zinc("kernels", "show", "copy", "--json").out)
    assert tree["rsrc2"] == f"{kernel.rsrc2:#010x}"
    assert tree["arguments"][2] == {"name": "n", "type": "u32", "dword": 4}
    assert tree["padded_bytes"] == len(kernel.code)


def test_disasm(zinc):
    kernel = compiled("argmax_keys")
    text = zinc("kernels", "disasm", "argmax_keys").out
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


def test_code_that_is_none(zinc, monkeypatch):
    kernel = compiled("copy")
    damaged = replace(kernel, code=b"\xff" * len(kernel.code))
    monkeypatch.setattr(verb, "_compile", lambda *_, **__: {"copy": damaged})
    outcome = zinc("kernels", "disasm", "copy")
    assert (outcome.code, outcome.out) == (1, "")
    assert "0x0" in outcome.error


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("kernels",), "Missing argument"),
        (("kernels", "make"), "'make' is not one of"),
        (("kernels", "show"), "show needs the name of a kernel"),
        (("kernels", "disasm"), "disasm needs"),
        (("kernels", "show", "argmax_key"), "did you mean argmax_keys?"),
        (("kernels", "show", "zzzz"), "`zinc kernels list` has them all"),
        (("kernels", "show", "copy", "--target", "ptx"), "copy is a kernel of AMD's cores alone; --target is ptx"),
        (("kernels", "list", "--target", "gfx900"), "--target is 'gfx900', it must be gfx"),
        (("kernels", "list", "copy", "nope"), "no kernel is named nope"),
    ],
)
def test_wrong_use_is_one_line_and_code_2(zinc, args, text):
    outcome = zinc(*args)
    assert outcome.code == 2
    assert text in outcome.error
    assert outcome.out == ""
    assert len(outcome.err.splitlines()) == 1


def test_help_names_the_arguments(zinc):
    shown = zinc("kernels", "--help").out
    assert "\n  NAME... " in shown
    assert "]..." not in shown.split("Arguments:")[1]
