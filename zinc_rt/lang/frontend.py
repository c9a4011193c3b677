"""From a kernel and its constants to a module of LLVM IR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from zinc_rt.lang.compiler import Module
from zinc_rt.lang.diagnostics import KernelError
from zinc_rt.lang.errors import LangError
from zinc_rt.lang.expressions import Frame
from zinc_rt.lang.irtext import FunctionText, ModuleText
from zinc_rt.lang.kernel import Function, Static
from zinc_rt.lang.lower import LOWERINGS
from zinc_rt.lang.lower.gpu import WORKITEM
from zinc_rt.lang.statements import _STATIC_ANNOTATIONS, Statements
from zinc_rt.lang.symbols import symbol_of
from zinc_rt.lang.target import Target
from zinc_rt.lang.types import Bool, Float, Int, Ptr, Type, Vec
from zinc_rt.lang.values import Constant, Val

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


def emit_module(name: str, specs: Sequence[Spec], target: Target) -> Module:
    """LLVM IR of kernels for a target. Raises `KernelError`."""
    text = ModuleText(target.triple)
    text.attributes.append('attributes #0 = { nounwind "no-builtins" "frame-pointer"="none" }')
    for i, spec in enumerate(specs):
        text.functions.append(_emit(text, spec, target, i + 1))
    return Module(name, text.text(), target, tuple(spec.symbol for spec in specs))


def _emit(module: ModuleText, spec: Spec, target: Target, number: int) -> str:
    function = spec.function
    if not function.entry:
        raise LangError(f"{function.name} is a helper; only kernels are compiled by themselves")
    gpu = target.arch == "amdgcn"
    f = FunctionText(module, gpu=gpu)
    compiler = Statements(f, target, LOWERINGS)
    frame = Frame(function)
    compiler.frames.append(frame)
    annotations = compiler._annotations(function)
    tree = function.tree
    given, parameters = dict(spec.constants), []
    for arg in (*tree.args.args, *tree.args.kwonlyargs):
        kind = annotations.get(arg.arg)
        if isinstance(kind, Type):
            if not isinstance(kind, Int | Float | Bool | Ptr) and not isinstance(kind, Vec):
                raise compiler.error(arg, f"parameters are scalars, vectors and pointers, not {kind}")
            parameters.append((arg.arg, kind))
        elif kind in _STATIC_ANNOTATIONS:
            if arg.arg not in given:
                raise KernelError(function.file, tree.lineno, "", f"{function.name} needs the constant {arg.arg}")
            value = given.pop(arg.arg)
            if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
                raise KernelError(
                    function.file, arg.lineno, "", f"the constant {arg.arg} must be {kind.__name__}, got {value!r}"
                )
            frame.names[arg.arg] = Constant(value, 0)
        else:
            raise compiler.error(
                arg, "a kernel's parameter needs a type: of the language, or int, float, bool, str, tuple"
            )
    if given:
        known = ", ".join(n for n, k in annotations.items() if k in _STATIC_ANNOTATIONS) or "none"
        raise LangError(f"{function.name} has no constants {', '.join(given)}; it has {known}")
    texts = []
    for i, (name, kind) in enumerate(parameters):
        texts.append(f"{f.type(kind)}{' inreg' if gpu else ''} %a{i}")
        frame.names[name] = compiler.variable(Val(kind, f"%a{i}"))
    returns = compiler.evaluate(tree.returns) if tree.returns is not None else None
    if returns is not None and not isinstance(returns, Type):
        raise compiler.error(tree, "the return type must be a type of the language, or None")
    if gpu:
        _check_arguments(function, parameters)
        texts.append(f"i32 {WORKITEM}")
    value = compiler.body(function)
    if f.reachable:
        if returns is None:
            if value is not None:
                raise compiler.error(tree, f"{function.name} returns a value but declares none: write `-> type`")
            f.end("ret void")
        else:
            if value is None:
                raise compiler.error(tree, f"{function.name} must return {returns} on every path")
            x = compiler.coerce(tree, value, returns)
            f.end(f"ret {f.type(returns)} {x.ref}")
    convention = "amdgpu_cs " if gpu else ""
    attributes = "#0"
    if gpu:
        attributes = f"#{number}"
        size = function.workgroup
        module.attributes.append(
            f'attributes {attributes} = {{ nounwind "no-builtins" "amdgpu-flat-work-group-size"="{size},{size}" }}'
        )
    head = f"define {convention}{f.type(returns)} @{spec.symbol}({', '.join(texts)}) {attributes} {{"
    return "\n".join([head, f.body(), "}"])


def _check_arguments(function: Function, parameters: Sequence[tuple[str, Type]]) -> None:
    dwords = sum(2 if isinstance(kind, Ptr) else max(1, kind.size // 4) for _, kind in parameters)
    if dwords > USER_SGPRS:
        raise KernelError(
            function.file, function.tree.lineno, "",
            f"{function.name}'s arguments take {dwords} scalar registers, the hardware passes {USER_SGPRS};"
            " put them into a struct and pass one pointer",
        )  # fmt: skip
