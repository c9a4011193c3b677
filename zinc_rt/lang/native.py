"""Kernels as Python functions: compile one, call it with numbers and arrays.

Arguments are checked against the kernel's annotations before machine code sees them. Bounds are not: what a kernel does
with an address is its own affair.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable
from functools import cached_property
from typing import Any

from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.lang.compiler import Compiler
from zinc_rt.lang.errors import LangError
from zinc_rt.lang.frontend import KernelInterface, Spec, emit_module, interface
from zinc_rt.lang.image import Image
from zinc_rt.lang.kernel import Function, Static
from zinc_rt.lang.library import Library
from zinc_rt.lang.target import TARGETS, Target, host_target
from zinc_rt.lang.types import Bool, Float, Int, Ptr, Struct, Type


class NativeKernel:
    """A kernel compiled for this machine. Calls release the GIL, so threads may run kernels side by side."""

    def __init__(self, spec: Spec, target: Target, address: int, code: object) -> None:
        """address: where the machine code is; code: what keeps it there."""
        self.spec, self.target, self.address = spec, target, address
        self.interface: KernelInterface = interface(spec, target)
        self._code = code
        kinds = [_ctype(kind) for _, kind in self.interface.parameters]
        result = None if self.interface.returns is None else _ctype(self.interface.returns)
        self._call = ctypes.CFUNCTYPE(result, *kinds)(address)
        self._convert = [_converter(spec.function.name, name, kind) for name, kind in self.interface.parameters]

    def __call__(self, *arguments: Any) -> Any:
        """Run the kernel. Pointers take arrays of the element's type, or an address; raises `LangError` for others."""
        if len(arguments) != len(self._convert):
            raise LangError(f"{self} takes {len(self._convert)} arguments, got {len(arguments)}")
        return self._call(*(convert(x) for convert, x in zip(self._convert, arguments, strict=True)))

    @cached_property
    def assembly(self) -> str:
        """The machine code as text."""
        return str(compile_image(self.spec, self.target, disassemble=True).meta["assembly"])

    def __str__(self) -> str:
        parameters = ", ".join(f"{name}: {kind}" for name, kind in self.interface.parameters)
        arrow = f" -> {self.interface.returns}" if self.interface.returns is not None else ""
        return f"{self.spec.function.name}({parameters}){arrow}"

    def __repr__(self) -> str:
        return f"<{self} for {self.target.name}>"


def compile(
    function: Function,
    *,
    target: str | Target | None = None,
    cache: CompileCache | None = None,
    **constants: Static,
) -> NativeKernel:
    """Compile a kernel for this machine, with its compile-time constants by name.

    target: an instruction-set level (`zinc_rt.lang.host_targets`), the best by default. cache: where compiled code is
    kept, the user's cache folder by default; `CompileCache(None)` keeps nothing.
    Raises `KernelError` for what the language refuses, `UnsupportedTarget`, `CompileError`.
    """
    if not isinstance(function, Function):
        raise LangError(f"{function!r} is no kernel; mark it with @kernel")
    chosen = target if isinstance(target, Target) else host_target(target)
    store = cache if cache is not None else CompileCache(default_cache_dir())
    library = Library(chosen, store)
    return NativeKernel(Spec(function, constants), chosen, library.address(function, constants), library)


def compile_image(spec: Spec, target: str | Target, *, disassemble: bool = False) -> Image:
    """A kernel's machine code for any target, with its text as `meta["assembly"]` if asked for.

    Raises `KernelError`, `LangError` for an unknown target, `CompileError`.
    """
    if isinstance(target, str):
        if target not in TARGETS:
            raise LangError(f"unknown target {target!r}; there are {', '.join(TARGETS)}")
        target = TARGETS[target]
    return Compiler().compile([emit_module(spec.function.name, [spec], target)], disassemble=disassemble)[0]


def checked_argument(kernel: str, name: str, kind: Type, value: Any) -> Any:
    """One argument as a plain number (an address for a pointer). Raises `LangError` where it does not fit."""
    return _converter(kernel, name, kind)(value)


def _ctype(kind: Type) -> Any:
    if isinstance(kind, Ptr):
        return ctypes.c_void_p
    if isinstance(kind, Bool):
        return ctypes.c_bool
    if isinstance(kind, Float):
        return ctypes.c_float if kind.bits == 32 else ctypes.c_double
    assert isinstance(kind, Int)
    return getattr(ctypes, f"c_{'' if kind.signed else 'u'}int{kind.bits}")


def _converter(kernel: str, name: str, kind: Type) -> Callable[[Any], Any]:
    """The function that checks one argument and makes it what ctypes takes."""

    def wrong(x: Any, wanted: str) -> LangError:
        return LangError(f"{kernel}: {name} is {kind} and takes {wanted}, got {_text(x)}")

    def integer(x: Any) -> int:
        assert isinstance(kind, Int)
        low, high = kind.limits
        try:
            value = operator.index(x)
        except TypeError:
            raise wrong(x, "an integer") from None
        if not low <= value <= high:
            raise wrong(x, f"{low} to {high}")
        return value

    def number(x: Any) -> float:
        try:
            if isinstance(x, str | bytes):
                raise TypeError
            return float(x)
        except (TypeError, ValueError, OverflowError):
            raise wrong(x, "a number") from None

    def truth(x: Any) -> bool:
        if type(x).__name__ not in ("bool", "bool_"):
            raise wrong(x, "True or False")
        return bool(x)

    def pointer(x: Any) -> int | None:
        assert isinstance(kind, Ptr)
        described = getattr(x, "__array_interface__", None)
        if not isinstance(described, dict):
            if x is None or (type(x) is int and 0 <= x < 1 << 64):
                return x
            raise wrong(x, f"an array of {_dtype(kind.elem)}, an address or None")
        if not _fits(described, kind.elem):
            raise wrong(x, f"an array of {_dtype(kind.elem)}")
        if described.get("strides") is not None:
            raise wrong(x, "a contiguous array (numpy.ascontiguousarray makes one)")
        return int(described["data"][0])

    if isinstance(kind, Ptr):
        return pointer
    return integer if isinstance(kind, Int) else truth if isinstance(kind, Bool) else number


def _fits(described: dict[str, Any], elem: Type) -> bool:
    """Whether an array (NumPy's array interface, version 3) has elements of a type."""
    code = str(described["typestr"])
    if isinstance(elem, Struct):
        return code == f"|V{elem.size}"
    order = "|" if elem.size == 1 else "<"
    return code == f"{order}{_dtype(elem)[0]}{elem.size}"


def _dtype(elem: Type) -> str:
    """The type of elements as NumPy calls it."""
    if isinstance(elem, Struct):
        return f"np.dtype({elem}.numpy)"
    if isinstance(elem, Int):
        return f"{'int' if elem.signed else 'uint'}{elem.bits}"
    if isinstance(elem, Ptr):
        return "uint64"
    return "uint16" if str(elem) == "bf16" else f"float{elem.size * 8}"


def _text(x: Any) -> str:
    dtype, shape = getattr(x, "dtype", None), getattr(x, "shape", None)
    if dtype is not None and shape is not None:
        return f"{dtype}{list(shape)}"
    return f"{type(x).__name__} {x!r:.40}" if isinstance(x, int | float | str) else f"a {type(x).__name__}"
