"""Kernels as Python functions: arguments checked, results typed, code kept; and what a kernel's identity rests on."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.lang import control_kernels, value_kernels
from zinc_rt import lang
from zinc_rt.lang import CompileCache, LangError, NativeKernel, Spec, compile, f32, i16, u64
from zinc_rt.lang.frontend import interface
from zinc_rt.lang.kernel import _file_hash
from zinc_rt.lang.native import checked_argument
from zinc_rt.lang.types import Ptr, Type, bf16, boolean, f64, i8, i32, u8

NOTHING = CompileCache(None)


@pytest.fixture(scope="module")
def fields() -> NativeKernel:
    return compile(value_kernels.fields, cache=NOTHING)


def test_kernels_say_what_they_take(fields: NativeKernel) -> None:
    assert str(fields) == "fields(s: ptr[Inner], n: i64)"
    assert repr(fields) == f"<fields(s: ptr[Inner], n: i64) for {fields.target.name}>"
    shape = interface(Spec(control_kernels.narrow, {"T": i16}), fields.target)
    assert shape.parameters == (("x", i32),)
    assert shape.returns == i16
    assert "ret" in fields.assembly


def test_the_number_of_arguments_is_checked(fields: NativeKernel) -> None:
    with pytest.raises(LangError, match=r"fields\(s: ptr\[Inner\], n: i64\) takes 2 arguments, got 1"):
        fields(0)


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        (i8, 127, 127), (i8, np.int64(-128), -128), (u64, 2**64 - 1, 2**64 - 1), (i32, True, 1), (f32, 1, 1.0),
        (f32, np.float64(0.5), 0.5), (boolean, np.True_, True), (boolean, False, False),
        (Ptr(f32), None, None), (Ptr(f32), 2**64 - 1, 2**64 - 1), (Ptr(f32), 0, 0),
    ],
)  # fmt: skip
def test_arguments_that_fit(kind: Type, value: Any, wanted: Any) -> None:
    assert checked_argument("k", "x", kind, value) == wanted


def test_arrays_that_fit() -> None:
    arrays = [
        (f32, np.zeros(3, np.float32)),
        (f32, np.zeros((2, 3), "<f4")),
        (i8, np.zeros(2, np.int8)),
        (u8, np.zeros(0, np.uint8)),
        (lang.f16, np.zeros(2, np.float16)),
        (bf16, np.zeros(2, np.uint16)),
        (Ptr(f32), np.zeros(2, np.uint64)),
        (value_kernels.Inner, np.zeros(2, value_kernels.Inner.numpy)),
        (f32, np.broadcast_to(np.float32(1), ())),
    ]
    for elem, array in arrays:
        assert checked_argument("k", "p", Ptr(elem), array) == array.ctypes.data
    frozen = np.zeros(2, np.float32)
    frozen.flags.writeable = False  # a kernel may well only read it
    assert checked_argument("k", "p", Ptr(f32), frozen) == frozen.ctypes.data


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (i8, 128, "x is i8 and takes -128 to 127, got int 128"),
        (u64, -1, "takes 0 to 18446744073709551615, got int -1"),
        (i32, 1.0, "x is i32 and takes an integer, got float 1.0"),
        (i32, None, "takes an integer, got a NoneType"),
        (f32, "0.5", "x is f32 and takes a number, got str '0.5'"),
        (f64, 10**400, "takes a number, got int 1000"),
        (boolean, 1, "x is bool and takes True or False, got int 1"),
        (Ptr(f32), -1, "takes an array of float32, an address or None, got int -1"),
        (Ptr(f32), [1.0], "takes an array of float32, an address or None, got a list"),
        (Ptr(f32), True, "an address or None, got bool True"),
        (Ptr(f32), np.zeros(4), r"x is ptr\[f32\] and takes an array of float32, got float64\[4\]"),
        (Ptr(f32), np.zeros(4, ">f4"), r"takes an array of float32, got >f4\[4\]"),
        (Ptr(f32), np.zeros((4, 4), np.float32).T[1:], "takes a contiguous array"),
        (Ptr(f32), np.zeros(8, np.float32)[::2], "takes a contiguous array"),
        (Ptr(i8), np.zeros(4, np.uint8), "takes an array of int8, got uint8"),
        (Ptr(bf16), np.zeros(4, np.float16), "takes an array of uint16, got float16"),
        (Ptr(Ptr(f32)), np.zeros(4, np.int64), "takes an array of uint64, got int64"),
        (Ptr(value_kernels.Inner), np.zeros(4, np.uint8), r"takes an array of np.dtype\(Inner.numpy\)"),
    ],
)
def test_arguments_that_do_not_fit(kind: Type, value: Any, words: str) -> None:
    with pytest.raises(LangError, match=f"^k: x is .*{words}" if not words.startswith("x") else f"^k: {words}"):
        checked_argument("k", "x", kind, value)


def test_compiled_code_is_kept(tmp_path: Path) -> None:
    def build() -> CompileCache:
        cache = CompileCache(tmp_path / "cache")
        assert compile(control_kernels.narrow, cache=cache, T=i16)(-1) == -1
        return cache

    first, second = build(), build()
    assert (first.stats.hits, first.stats.stored) == (0, 1)
    assert (second.stats.hits, second.stats.stored) == (1, 0)


# -- identity -------------------------------------------------------------------------------------------------------

HELPERS = "from zinc_rt.lang import *\nSIZE = {size}\n\n@inline\ndef helper(x):\n    return x {op} 2.0\n"
KERNELS = """from zinc_rt.lang import *
import identity_helpers
from identity_constants import RECORDS, TABLE, SIZES, Letter

@kernel
def first(p: ptr[f32]):
    p[0] = identity_helpers.helper(p[0])

@kernel
def second(p: ptr[f32]):
    p[TABLE["a"]] = f32(i32(sorted(SIZES)[0]))

@kernel
def third(p: ptr[i32]):
    p[0] = RECORDS["r"].twice

@kernel
def fourth(p: ptr[i32]):
    p[0] = Letter.A.value
"""
CONSTANTS = """import enum
from identity_records import Record

TABLE = {{'a': {a}}}
SIZES = {{3, 5, 'x'.__len__(), {extra}}}
RECORDS = {{'r': Record(1)}}

class Letter(enum.Enum):
    A = {a}
"""
RECORDS = """import dataclasses

@dataclasses.dataclass(frozen=True)
class Record:
    n: int

    @property
    def twice(self):
        return {factor} * self.n
"""


def load(folder: Path, monkeypatch: pytest.MonkeyPatch, **texts: str) -> ModuleType:
    """Write modules and import the kernels anew."""
    monkeypatch.syspath_prepend(str(folder))
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    for name in ("identity_helpers", "identity_records", "identity_constants", "identity_kernels"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    _file_hash.cache_clear()
    spec = importlib.util.spec_from_file_location("identity_kernels", folder / "identity_kernels.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_identity_changes_with_what_the_meaning_rests_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "identity_helpers": HELPERS.format(size=1, op="*"),
        "identity_constants": CONSTANTS.format(a=1, extra=7),
        "identity_records": RECORDS.format(factor=2),
        "identity_kernels": KERNELS,
    }
    base = load(tmp_path, monkeypatch, **texts)
    prints = {name: getattr(base, name).fingerprint() for name in ("first", "second", "third", "fourth")}
    assert prints["first"] != prints["second"]

    def changed(**changes: str) -> set[str]:
        """The kernels whose identity differs, imported from a folder of its own so that no bytecode is shared."""
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        module = load(folder, monkeypatch, **{**texts, **changes})
        return {name for name, before in prints.items() if getattr(module, name).fingerprint() != before}

    assert changed() == set()
    assert changed(identity_helpers=HELPERS.format(size=1, op="+")) == {"first"}
    assert changed(identity_constants=CONSTANTS.format(a=2, extra=7)) == {"second", "fourth"}
    assert changed(identity_constants=CONSTANTS.format(a=1, extra=8)) == {"second"}
    assert changed(identity_records=RECORDS.format(factor=3)) == {"third"}
    assert changed(identity_kernels=KERNELS + "\n") == set(prints)


def test_identity_is_the_same_in_every_process() -> None:
    code = (
        "from tests.lang import control_kernels as k\n"
        "print([s.function.fingerprint().hex() + s.symbol for s in k.SPECS[-20:]])"
    )
    root = Path(__file__).parents[2]
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=root,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1] != ""


def test_symbols_are_ascii_and_differ_with_constants() -> None:
    def größe() -> None:  # noqa: PLC2401
        pass

    names = [
        Spec(lang.kernel(größe)).symbol,
        *(Spec(control_kernels.narrow, {"T": t}).symbol for t in (i8, i16)),
        Spec(control_kernels.narrow, {"T": i8, "N": 1}).symbol,
        Spec(control_kernels.narrow, {"T": i8, "N": True}).symbol,
        Spec(control_kernels.narrow, {"T": i8, "N": 1.0}).symbol,
    ]
    assert all(name.isascii() and name.isidentifier() for name in names)
    assert len(set(names)) == len(names)
