"""LLVM IR as text: one function under construction, and the module around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.types import Bool, Float, Int, Ptr, Struct, Type, Vec

MAX_INSTRUCTIONS = 400_000
"""Most instructions of one function before optimisation; a larger one was unrolled by mistake."""

# 16-bit floats are bits until they are converted: LLVM's own types for them drag in library calls and promotions.
_FLOATS = {"f16": "i16", "bf16": "i16", "f32": "float", "f64": "double"}


@cache
def llvm_type(kind: Type | None, machine: Any = None) -> str:
    """The LLVM name of a type; a GPU's machine keeps address spaces apart."""
    if kind is None:
        return "void"
    if isinstance(kind, Bool):
        return "i1"
    if isinstance(kind, Int):
        return f"i{kind.bits}"
    if isinstance(kind, Float):
        return _FLOATS[kind.name]
    if isinstance(kind, Vec):
        return f"<{kind.lanes} x {llvm_type(kind.elem)}>"
    if isinstance(kind, Ptr):
        return f"ptr addrspace({machine.spaces[kind.space]})" if machine is not None else "ptr"
    if isinstance(kind, Struct):
        return f"[{kind.size} x i8]"
    raise TypeError(kind)


@cache
def suffix(kind: Type) -> str:
    """A type of numbers in the name of an overloaded intrinsic: f32, v16i32."""
    if isinstance(kind, Vec):
        return f"v{kind.lanes}{suffix(kind.elem)}"
    if isinstance(kind, Float) and kind.bits > 16:
        return kind.name
    return llvm_type(kind)


def extended(kind: Type | None) -> str:
    """The attribute that widens a small integer in its register, which C's callers and callees may rely on."""
    if isinstance(kind, Bool) or (isinstance(kind, Int) and kind.bits < 32):
        return "signext " if isinstance(kind, Int) and kind.signed else "zeroext "
    return ""


@dataclass
class ModuleText:
    """Declarations and definitions of a module, in first-use order."""

    triple: str
    machine: Any = None  # of a GPU, see `machines.GpuMachine`
    declarations: dict[str, str] = field(default_factory=dict)
    globals: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    attributes: list[str] = field(default_factory=list)

    def declare(self, name: str, returns: str, arguments: Sequence[str]) -> None:
        """Make an intrinsic known."""
        if name not in self.declarations:
            self.declarations[name] = f"declare {returns} @{name}({', '.join(arguments)})"

    def attribute(self, line: str) -> None:
        """An attribute group or a metadata node, once."""
        if line not in self.attributes:
            self.attributes.append(line)

    def text(self) -> str:
        """The whole module."""
        head = [f'target triple = "{self.triple}"', *self.globals, *self.declarations.values()]
        return "\n".join([*head, *self.functions, *self.attributes]) + "\n"


class FunctionText:
    """Basic blocks in the order of emission; one is current unless the code here cannot be reached."""

    def __init__(self, module: ModuleText) -> None:
        self.module, self.machine = module, module.machine
        self.x86 = module.triple.startswith("x86_64")
        self._memory = "_llvm" if self.machine is None else f"_llvm_{self.machine.name}"
        self._entry: list[str] = []
        self._body: list[str] = []
        self._count = 0
        self.block: str | None = "body"
        self.shared_bytes = 0  # of LDS, so far
        self.stack = "ptr" if self.machine is None else self.machine.stack
        """How LLVM writes a pointer to stack memory."""

    @property
    def gpu(self) -> bool:
        """Whether this is code of a GPU."""
        return self.machine is not None

    @property
    def reachable(self) -> bool:
        """Whether code emitted now can run."""
        return self.block is not None

    def type(self, kind: Type | None) -> str:
        """`llvm_type` for this target, remembered on the type: nothing is asked more often."""
        if kind is None:
            return "void"
        known: dict[str, str] = kind.__dict__
        try:
            return known[self._memory]
        except KeyError:
            text = known[self._memory] = llvm_type(kind, self.machine)
            return text

    def name(self, stem: str = "t") -> str:
        """A fresh local name without its sigil."""
        self._count += 1
        if self._count > MAX_INSTRUCTIONS:
            raise Reject(f"the kernel grows past {MAX_INSTRUCTIONS} instructions; unroll less, or loop with range")
        return f"{stem}{self._count}"

    def emit(self, line: str) -> None:
        """An instruction without a result."""
        if self.block is not None:
            self._body.append("  " + line)

    def value(self, expression: str) -> str:
        """An instruction with a result; its name."""
        name = "%" + self.name()
        if self.block is not None:
            self._body.append(f"  {name} = {expression}")
        return name

    def alloca(self, kind: str, align: int, count: int = 1) -> str:
        """Stack memory of the function's frame, made in its entry block."""
        name = "%" + self.name("s")
        n = f", i32 {count}" if count != 1 else ""
        space = self.stack.replace("ptr ", ", ") if self.stack != "ptr" else ""
        self._entry.append(f"  {name} = alloca {kind}{n}, align {align}{space}")
        return name

    def new_block(self, stem: str) -> str:
        """A label to branch to."""
        return self.name(stem)

    def start(self, label: str) -> None:
        """Continue in a block; falls through from the current one."""
        if self.block is not None:
            self._body.append(f"  br label %{label}")
        self._body.append(f"{label}:")
        self.block = label

    def branch(self, label: str) -> None:
        """Leave the current block."""
        self.emit(f"br label %{label}")
        self.block = None

    def branch_if(self, condition: str, then: str, other: str) -> None:
        """Leave the current block one way or the other."""
        self.emit(f"br i1 {condition}, label %{then}, label %{other}")
        self.block = None

    def end(self, line: str) -> None:
        """Leave the function."""
        self.emit(line)
        self.block = None

    def join(self, kind: Type, ways: Sequence[tuple[str, str]]) -> str:
        """The value of the way that led into the current block, which has just been started: (value, block) each."""
        if len(ways) == 1:
            return ways[0][0]
        return self.value(f"phi {self.type(kind)} {', '.join(f'[ {ref}, %{block} ]' for ref, block in ways)}")

    def call(self, name: str, returns: Type | str | None, arguments: Sequence[tuple[str, str]]) -> str:
        """Call an intrinsic by name; arguments are (LLVM type, value)."""
        kind = returns if isinstance(returns, str) else self.type(returns)
        self.module.declare(name, kind, [t for t, _ in arguments])
        text = f"call {kind} @{name}({', '.join(f'{t} {v}' for t, v in arguments)})"
        if kind == "void":
            self.emit(text)
            return ""
        return self.value(text)

    def body(self) -> str:
        """Everything between the braces."""
        return "\n".join(["entry:", *self._entry, "  br label %body", "body:", *self._body])
