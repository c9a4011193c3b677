"""The front end: makes a module of LLVM IR from a kernel and its constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from zinc_rt.lang.calls import is_of
from zinc_rt.lang.compiler import Module
from zinc_rt.lang.diagnostics import KernelError, Reject
from zinc_rt.lang.errors import LangError
from zinc_rt.lang.frame import Frame
from zinc_rt.lang.irtext import FunctionText, ModuleText, extended
from zinc_rt.lang.kernel import Function, Static
from zinc_rt.lang.loops import Loops
from zinc_rt.lang.lower import LOWERINGS
from zinc_rt.lang.machines import KernelHead, machine_of
from zinc_rt.lang.symbols import symbol_of
from zinc_rt.lang.target import Target
from zinc_rt.lang.types import Bool, Float, Int, Ptr, Space, Type
from zinc_rt.lang.values import Constant, Val, describe

USER_SGPRS = 16
"""Dwords of arguments that the hardware passes in scalar registers."""


@dataclass(frozen=True)
class Spec:
    """A kernel and the compile-time constants it is specialised for."""

    function: Function
    constants: Mapping[str, Static] = field(default_factory=dict)

    @property
    def symbol(self) -> str:
        """The exported name: the kernel's, and a short hash of its constants where it has some."""
        return symbol_of(self.function, self.constants)


@dataclass(frozen=True)
class KernelInterface:
    """The interface of a compiled kernel: run-time parameters in order, and the type of its result."""

    parameters: tuple[tuple[str, Type], ...]
    returns: Type | None


def emit_module(name: str, specs: Sequence[Spec], target: Target) -> Module:
    """LLVM IR of kernels for a target. Raises `KernelError`, or `LangError` for a wrong set of kernels."""
    text = ModuleText(target.triple, machine_of(target))
    text.attributes.append('attributes #0 = { nounwind "no-builtins" "frame-pointer"="none" }')
    symbols = [spec.symbol for spec in specs]
    for symbol in symbols:
        if symbols.count(symbol) > 1:
            raise LangError(f"module {name} would hold two kernels {symbol}; give each a name or constants of its own")
    target = _for_waves(name, specs, target)
    for i, spec in enumerate(specs):
        if not spec.function.entry:
            raise LangError(f"{spec.function.name} is a helper; only kernels are compiled by themselves")
        try:
            text.functions.append(emit_function(text, spec, target, i + 1))
        except RecursionError:
            raise problem(spec.function, "an expression or a block is nested too deeply") from None
    return Module(name, text.text(), target, tuple(symbols))


def _for_waves(name: str, specs: Sequence[Spec], target: Target) -> Target:
    """The target with the lanes that the kernels want."""
    if not target.gpu or all(spec.function.wave == 32 for spec in specs):
        return target
    if target.arch != "amdgcn":
        raise LangError(f"module {name} has kernels for waves of 64 lanes, which {target.name} does not have")
    if any(spec.function.wave == 32 for spec in specs):
        raise LangError(f"module {name} would hold kernels for waves of 32 and of 64 lanes; compile them apart")
    isa = target.isa - {"wave32", "wmma"} | {"wave64"}
    return replace(target, features=(*target.features, "+wavefrontsize64"), isa=isa)


def interface(spec: Spec, target: Target) -> KernelInterface:
    """The parameters and the result of a kernel, without compiling its body. Raises `KernelError`."""
    return prepare(ModuleText(target.triple, machine_of(target)), spec, target)[1]


def problem(function: Function, reason: str) -> KernelError:
    """An error of a function as a whole."""
    return KernelError(function.file, function.tree.lineno, "", f"{function.name}: {reason}")


def prepare(module: ModuleText, spec: Spec, target: Target) -> tuple[Loops, KernelInterface]:
    """A compiler whose frame holds the kernel's constants, and the kernel's interface."""
    function, gpu = spec.function, module.machine is not None
    arguments = function.tree.args
    if extra := arguments.vararg or arguments.kwarg:
        raise problem(function, f"a kernel cannot take *{extra.arg}; name every parameter")
    compiler = Loops(FunctionText(module), target, LOWERINGS)
    compiler.enter(Frame(function))
    try:
        defaults = function.signature.defaults
    except Reject as reason:
        raise problem(function, str(reason)) from None
    given = {**defaults, **spec.constants}
    kinds = compiler.annotations(function, given)
    parameters = []
    for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        kind = kinds.get(arg.arg)
        if kind is None:
            raise compiler.error(arg, "a kernel's parameter needs a type: of the language, or int, float, bool, str, …")
        if isinstance(kind, Type):
            if arg.arg in given:
                raise problem(function, f"{arg.arg} is an argument of run time ({kind}); it takes no constant")
            _check_parameter(compiler, arg, kind)
            parameters.append((arg.arg, kind))
            continue
        if arg.arg not in given:
            raise problem(function, f"the constant {arg.arg}: {kind.__name__} is not given")
        value = given.pop(arg.arg)
        if not is_of(value, kind):
            raise problem(function, f"the constant {arg.arg} must be of type {kind.__name__}, got {describe(value)}")
        compiler.frame.names[arg.arg] = Constant(value, 0)
    if given:
        known = ", ".join(n for n, k in kinds.items() if not isinstance(k, Type)) or "none"
        raise problem(function, f"there is no constant {', '.join(given)}; the kernel's constants: {known}")
    returns = compiler.returned(function)
    if returns is not None and (gpu or not _by_register(returns)):
        what = "a GPU kernel returns nothing" if gpu else f"a kernel cannot return {returns}"
        raise compiler.error(function.tree, f"{what}; write results through a pointer")
    if gpu:
        _check_registers(function, parameters)
    return compiler, KernelInterface(tuple(parameters), returns)


def _by_register(kind: Type) -> bool:
    """Whether C passes a type in one register."""
    return isinstance(kind, Int | Bool | Ptr) or (isinstance(kind, Float) and kind.bits > 16)


def _check_parameter(compiler: Loops, arg: Any, kind: Type) -> None:
    if not _by_register(kind):
        raise compiler.error(
            arg, f"a kernel's arguments are integers, f32, f64, bool and pointers, not {kind}; pass a pointer"
        )
    if isinstance(kind, Ptr) and kind.space not in (Space.GLOBAL, Space.CONSTANT):
        raise compiler.error(arg, f"{kind}: only pointers to GLOBAL and CONSTANT memory come from outside")


def _check_registers(function: Function, parameters: Sequence[tuple[str, Type]]) -> None:
    dwords = sum(argument_dwords(kind) for _, kind in parameters)
    if dwords > USER_SGPRS:
        raise problem(
            function,
            f"its arguments take {dwords} scalar registers, the hardware passes {USER_SGPRS};"
            " put them into a struct and pass one pointer, ptr[…, Space.CONSTANT]",
        )


def argument_dwords(kind: Type) -> int:
    """Scalar registers that an argument takes on a GPU."""
    return 2 if kind.size == 8 else 1


def emit_function(module: ModuleText, spec: Spec, target: Target, number: int) -> str:
    """The text of a kernel as an exported function. number: of its attributes. Raises `KernelError`."""
    function = spec.function
    compiler, shape = prepare(module, spec, target)
    f = compiler.f
    for i, (name, kind) in enumerate(shape.parameters):
        compiler.frame.names[name] = compiler.bind(name, Val(kind, f"%a{i}"))
    try:
        value = compiler.body(function, shape.returns)
    except Reject as reason:
        raise problem(function, str(reason)) from None
    except KernelError as error:
        raise error.inside(function.name) from None
    if f.reachable:
        if shape.returns is not None:
            f.end(f"ret {f.type(shape.returns)} {compiler.coerce(function.tree, value, shape.returns).ref}")
        elif value is not None:
            raise problem(function, "it returns a value but declares none; write `-> type`")
        else:
            f.end("ret void")
    kinds = [f.type(kind) for _, kind in shape.parameters]
    if module.machine is not None:
        head = module.machine.definition(KernelHead(module, function, target, spec.symbol, kinds, number))
    else:
        texts = ", ".join(f"{kind} %a{i}" for i, kind in enumerate(kinds))
        head = f"define {extended(shape.returns)}{f.type(shape.returns)} @{spec.symbol}({texts}) #0 {{"
    return "\n".join([head, f.body(), "}"])
