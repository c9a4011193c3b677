"""OpenCL devices by SPIR-V: kernels of physical 64-bit addresses, in sub-groups of 32.

What a device must have for the float contract: CL_FP_DENORM for float32 and float64; float64 at all (cl_khr_fp64), by
which float32 is divided; and for conversions of float16 cl_khr_fp16 with CL_FP_DENORM in CL_DEVICE_HALF_FP_CONFIG: that
float16's subnormals are kept without it, OpenCL C promises ("The half Data Type") of vload_half and vstore_half alone.
Conversions to floats round to nearest even where a module says nothing else (SPIR-V, "FP Rounding Mode").

Names of built-in functions are those of OpenCL C, mangled as its extensions define them (Itanium C++ ABI).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from zinc_rt.lang.lower.vectors import pick
from zinc_rt.lang.machines import WAVE, GpuMachine, KernelHead
from zinc_rt.lang.types import Space, Vec, boolean, elem_of, f32, i32, i64, lanes_of, with_elem
from zinc_rt.lang.values import Val

if TYPE_CHECKING:
    from zinc_rt.lang.irtext import FunctionText

# The numbers of SPIR-V's specification, "Scope <id>" and "Memory Semantics <id>".
_WORKGROUP: Final = 2
_ORDERED: Final = 0x8 | 0x100 | 0x200  # acquire and release, of local and of global memory
_PURE: Final = "nounwind willreturn memory(none)"


def builtin(f: FunctionText, name: str, returns: str, arguments: Sequence[tuple[str, str]], attributes: str) -> str:
    kinds = ", ".join(kind for kind, _ in arguments)
    f.module.declarations.setdefault(name, f"declare spir_func {returns} @{name}({kinds}) {attributes}")
    text = f"call spir_func {returns} @{name}({', '.join(f'{kind} {value}' for kind, value in arguments)})"
    if returns == "void":
        f.emit(text)
        return ""
    return f.value(text)


def _id(c: Any, name: str, *arguments: tuple[str, str]) -> str:
    """A number that OpenCL gives as a size_t. It is cut by name: LLVM 22 forgets a truncation before an "and"."""
    wide = builtin(c.f, name, "i64", arguments, _PURE)
    return builtin(c.f, "_Z12convert_uintm", "i32", [("i64", wide)], _PURE)


def _through_f64(f: FunctionText, compute: Callable[..., str], *operands: Val) -> Val:
    """A function of float32 by its correctly rounded result in float64, lane by lane."""
    kind = operands[0].type
    out = Val(kind, "poison")
    for lane in range(lanes_of(kind)):
        singles = (v.ref if not isinstance(kind, Vec) else pick(f, v, None, [lane]).ref for v in operands)
        wide = compute(*(f.value(f"fpext float {single} to double") for single in singles))
        # By name: LLVM would see that the float64 is not needed, and leave it out.
        single = builtin(f, "_Z17convert_float_rted", "float", [("double", wide)], _PURE)
        if not isinstance(kind, Vec):
            return Val(kind, single)
        out = Val(kind, f.value(f"insertelement {f.type(kind)} {out.ref}, float {single}, i64 {lane}"))
    return out


class _Spirv(GpuMachine):
    name = "spirv64"
    # "CrossWorkgroup" for all memory of the device; "UniformConstant" takes no address that the host made.
    spaces: ClassVar[Mapping[Space, int]] = {Space.GLOBAL: 1, Space.SHARED: 3, Space.CONSTANT: 1, Space.PRIVATE: 0}
    tables = 1
    saturates = False  # "should be", says OpenCL of NaN
    reverses_bits = False  # OpBitReverse wants a capability that OpenCL does not have

    def definition(self, head: KernelHead) -> str:
        size = f"!reqd_work_group_size !{{i32 {head.function.lanes(head.target)}, i32 1, i32 1}}"
        wave = f"!intel_reqd_sub_group_size !{{i32 {WAVE}}}"
        return f'define spir_kernel void @{head.symbol}({head.named}) nounwind "no-builtins" {size} {wave} {{'

    def workgroup_id(self, c: Any, axis: int) -> str:
        return _id(c, "_Z12get_group_idj", ("i32", str(axis)))

    def workitem_id(self, c: Any) -> str:
        return _id(c, "_Z12get_local_idj", ("i32", "0"))

    def lane_id(self, c: Any) -> str:
        return builtin(c.f, "_Z22get_sub_group_local_idv", "i32", [], _PURE)

    def barrier(self, c: Any) -> None:
        operands = [("i32", str(x)) for x in (_WORKGROUP, _WORKGROUP, _ORDERED)]
        builtin(c.f, "_Z22__spirv_ControlBarrieriii", "void", operands, "convergent nounwind")

    def shuffle_xor(self, c: Any, bits: str, distance: int) -> str:
        operands = [("i32", bits), ("i32", str(distance))]
        return builtin(c.f, "_Z21sub_group_shuffle_xorjj", "i32", operands, f"convergent {_PURE}")

    def first_lane(self, c: Any, bits: str) -> str:
        return builtin(c.f, "_Z25sub_group_broadcast_firstj", "i32", [("i32", bits)], f"convergent {_PURE}")

    def dot4(self, c: Any, total: str, a: str, b: str, signed: bool) -> str:
        """OpSDot or OpSUDot of packed words, or byte by byte: exact in 32 bits."""
        if "dot4" not in c.target.isa:
            return _dot_of_bytes(c, total, a, b, signed)
        name = "_Z20dot_4x8packed_ss_intjj" if signed else "_Z20dot_4x8packed_us_intjj"
        product = builtin(c.f, name, "i32", [("i32", a), ("i32", b)], _PURE)
        return str(c.f.value(f"add i32 {total}, {product}"))

    def pick_bytes(self, c: Any, high: str, low: str, selector: str) -> str:
        """By shifts of the 64 bits of both words."""

        def do(text: str) -> str:
            return str(c.f.value(text))

        upper = do(f"shl i64 {do(f'zext i32 {high} to i64')}, 32")
        both = do(f"or i64 {upper}, {do(f'zext i32 {low} to i64')}")
        out = "0"
        for at in (0, 8, 16, 24):
            number = do(f"and i32 {do(f'lshr i32 {selector}, {at}')}, 7")
            distance = do(f"zext i32 {do(f'shl i32 {number}, 3')} to i64")
            shifted = do(f"trunc i64 {do(f'lshr i64 {both}, {distance}')} to i32")
            byte = do(f"shl i32 {do(f'and i32 {shifted}, 255')}, {at}")
            out = do(f"or i32 {out}, {byte}")
        return out

    def divide(self, f: FunctionText, x: Val, y: Val) -> Val:
        """OpFDiv of float32 may be 2.5 units off. The quotient in float64 is correctly rounded, and rounding it again
        changes nothing: 53 bits are more than 2 * 24 + 2 (S. Figueroa, "When is double rounding innocuous?").
        """
        if elem_of(x.type) != f32:
            return super().divide(f, x, y)
        return _through_f64(f, lambda a, b: f.value(f"fdiv double {a}, {b}"), x, y)

    def sqrt(self, f: FunctionText, x: Val) -> Val:
        """As `divide`: 3 units in float32."""
        if elem_of(x.type) != f32:
            return super().sqrt(f, x)
        return _through_f64(f, lambda a: f.call("llvm.sqrt.f64", "double", [("double", a)]), x)

    def extreme(self, f: FunctionText, word: str, x: Val, y: Val) -> Val:
        """OpenCL's fmax and fmin drop NaN and leave the order of zeros open. Equal numbers differ in the sign of zero
        alone, which "and" keeps where both have it, "or" where one does.
        """
        kind, mask = f.type(x.type), f.type(with_elem(x.type, boolean))
        words = f.type(with_elem(x.type, i32 if elem_of(x.type) == f32 else i64))
        a, b = (f.value(f"bitcast {kind} {v.ref} to {words}") for v in (x, y))
        merged = f.value(f"{'and' if word == 'max' else 'or'} {words} {a}, {b}")
        out = f.value(f"bitcast {words} {merged} to {kind}")
        sign = "ogt" if word == "max" else "olt"
        for one, other in ((x, y), (y, x)):
            before = f.value(f"fcmp {sign} {kind} {one.ref}, {other.ref}")
            out = f.value(f"select {mask} {before}, {kind} {one.ref}, {kind} {out}")
        unordered = f.value(f"fcmp uno {kind} {x.ref}, {y.ref}")
        nan = f.value(f"fadd {kind} {x.ref}, {y.ref}")
        return Val(x.type, f.value(f"select {mask} {unordered}, {kind} {nan}, {kind} {out}"))

    def pause(self, c: Any) -> None:
        return None


def _dot_of_bytes(c: Any, total: str, a: str, b: str, signed: bool) -> str:
    for above in (24, 16, 8, 0):
        high, other = (c.f.value(f"shl i32 {word}, {above}") for word in (a, b))
        x, y = c.f.value(f"{'ashr' if signed else 'lshr'} i32 {high}, 24"), c.f.value(f"ashr i32 {other}, 24")
        total = c.f.value(f"add i32 {total}, {c.f.value(f'mul i32 {x}, {y}')}")
    return total


MACHINE = _Spirv()
