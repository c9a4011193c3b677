"""LLVM IR that the tests of the compile service share, and how it is called."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from zinc_rt.lang.compiler import Compiler, Module
from zinc_rt.lang.image import Code, Image
from zinc_rt.lang.target import TARGETS, Target

# Constants of every kind in read-only memory, a jump table, calls, a function's own address.
CONSTANTS = """
@bytes = internal constant [16 x i8] c"0123456789abcdef"
@shorts = internal constant [4 x i16] [i16 100, i16 -200, i16 300, i16 400]
@words = internal constant [4 x i32] [i32 7, i32 -8, i32 9, i32 10]
@longs = internal constant [3 x i64] [i64 100000000001, i64 -200000000002, i64 300000000003]

define float @pick(float %x, i32 %i) {
  %y = fmul float %x, 1.5
  switch i32 %i, label %other [ i32 0, label %a
    i32 1, label %b
    i32 2, label %c
    i32 3, label %d
    i32 4, label %e ]
a:
  ret float %y
b:
  %s = call float @far(float %y)
  ret float %s
c:
  %t = fsub float 7.0, %x
  ret float %t
d:
  ret float 9.0
e:
  %q = fdiv float %x, 3.0
  ret float %q
other:
  ret float 100.25
}

define internal float @far(float %x) noinline {
  %r = fadd float %x, 4.25
  ret float %r
}

define i64 @sum(i64 %i) {
  %a = getelementptr i8, ptr @bytes, i64 %i
  %b = getelementptr i16, ptr @shorts, i64 %i
  %c = getelementptr i32, ptr @words, i64 %i
  %d = getelementptr i64, ptr @longs, i64 %i
  %v = load i8, ptr %a
  %w = load i16, ptr %b
  %x = load i32, ptr %c
  %y = load i64, ptr %d
  %z = load volatile i64, ptr getelementptr (i64, ptr @longs, i64 1)
  %u = load volatile i16, ptr getelementptr (i16, ptr @shorts, i64 3)
  %v64 = sext i8 %v to i64
  %w64 = sext i16 %w to i64
  %x64 = sext i32 %x to i64
  %u64 = sext i16 %u to i64
  %s1 = add i64 %v64, %w64
  %s2 = add i64 %s1, %x64
  %s3 = add i64 %s2, %y
  %s4 = add i64 %s3, %z
  %s5 = add i64 %s4, %u64
  ret i64 %s5
}

define ptr @itself() {
  ret ptr @pick
}
"""
CONSTANTS_EXPORTS = ("pick", "sum", "itself")

INCREMENT = "define i32 @increment(i32 %x) {\n  %y = add i32 %x, 1\n  ret i32 %y\n}\n"

# Cannot be selected without AVX-512 and has no smaller form: LLVM aborts.
FATAL = """
declare <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32>, <64 x i8>, <64 x i8>)
define <16 x i32> @fatal(<16 x i32> %a, <64 x i8> %b, <64 x i8> %c) {
  %r = call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32> %a, <64 x i8> %b, <64 x i8> %c)
  ret <16 x i32> %r
}
"""

AVX2 = TARGETS["avx2"]


def increment(name: str = "increment", target: Target = AVX2) -> Module:
    """A module that compiles in a few milliseconds for any processor."""
    return Module(name, INCREMENT, target, ("increment",))


def fatal(name: str = "fatal") -> Module:
    """A module that kills LLVM."""
    return Module(name, FATAL, AVX2, ("fatal",))


def slow(name: str = "slow", bits: int = 1 << 15) -> Module:
    """A module that takes LLVM minutes of processor time: a product of very wide integers, word by word.

    4,096 bits take it about half a second.
    """
    ir = (
        f"define void @slow(ptr %p) {{\n  %x = load i{bits}, ptr %p\n  %y = mul i{bits} %x, %x\n"
        f"  store i{bits} %y, ptr %p\n  ret void\n}}\n"
    )
    return Module(name, ir, AVX2, ("slow",))


def compiled(ir: str, *exports: str, target: Target = AVX2, opt: int = 2, disassemble: bool = False) -> Image:
    """One module's image."""
    return Compiler(jobs=1).compile([Module("test", ir, target, exports, opt)], disassemble=disassemble)[0]


def function(code: Code, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """An exported function by its C types; `code` must be kept while it is used."""
    call: Callable[..., Any] = ctypes.CFUNCTYPE(result, *arguments)(code.address(name))
    return call
