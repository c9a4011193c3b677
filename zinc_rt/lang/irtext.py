"""LLVM IR as text: one function under construction, and the module around it."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from zinc_rt.lang.types import Bool, Float, Int, Ptr, Space, Struct, Tile, Type, Vec

_FLOATS = {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double"}


def llvm_type(kind: Type | None, *, gpu: bool = False) -> str:
    """How LLVM writes a type; `gpu` keeps address spaces apart."""
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
        return f"ptr addrspace({int(kind.space)})" if gpu and kind.space is not Space.GENERIC else "ptr"
    if isinstance(kind, Struct):
        return f"[{kind.size} x i8]"
    if isinstance(kind, Tile):
        return "[1024 x i8]"
    raise TypeError(kind)


def suffix(kind: Type) -> str:
    """A type in the name of an overloaded intrinsic: f32, v16i32, p1."""
    if isinstance(kind, Vec):
        return f"v{kind.lanes}{suffix(kind.elem)}"
    if isinstance(kind, Int | Bool):
        return llvm_type(kind)
    if isinstance(kind, Float):
        return kind.name
    if isinstance(kind, Ptr):
        return f"p{int(kind.space)}"
    raise TypeError(kind)


def float_bits(kind: Float, value: float) -> str:
    """A float constant; f32 and smaller are rounded once to their type."""
    if kind.name == "f64":
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if kind.name == "f32":
        try:
            rounded = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            rounded = float("inf") if value > 0 else float("-inf")
        return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
    if kind.name == "f16":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    if value == value:
        bits += 0x7FFF + (bits >> 16 & 1)
    return f"0xR{bits >> 16 & 0xFFFF:04X}"


@dataclass
class ModuleText:
    """Declarations and definitions of a module, in first-use order."""

    triple: str
    declarations: dict[str, str] = field(default_factory=dict)
    globals: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    attributes: list[str] = field(default_factory=list)

    def declare(self, name: str, returns: str, arguments: list[str]) -> None:
        """Make an intrinsic or function known."""
        self.declarations.setdefault(name, f"declare {returns} @{name}({', '.join(arguments)})")

    def text(self) -> str:
        """The whole module."""
        head = [f'target triple = "{self.triple}"', *self.globals, *self.declarations.values()]
        return "\n".join([*head, *self.functions, *self.attributes]) + "\n"


class FunctionText:
    """Basic blocks in the order of emission; one is current unless the code here cannot be reached."""

    def __init__(self, module: ModuleText, *, gpu: bool) -> None:
        self.module, self.gpu = module, gpu
        self._entry: list[str] = []
        self._body: list[str] = []
        self._count = 0
        self.block: str | None = "body"

    @property
    def reachable(self) -> bool:
        """Whether code emitted now can run."""
        return self.block is not None

    def type(self, kind: Type | None) -> str:
        """`llvm_type` for this target."""
        return llvm_type(kind, gpu=self.gpu)

    def name(self, stem: str = "t") -> str:
        """A fresh local name without its sigil."""
        self._count += 1
        return f"{stem}{self._count}"

    def emit(self, line: str) -> None:
        """An instruction without a result."""
        if self.block is not None:
            self._body.append("  " + line)

    def value(self, expression: str) -> str:
        """An instruction with a result; its name."""
        name = "%" + self.name()
        self.emit(f"{name} = {expression}")
        return name

    def alloca(self, kind: str, align: int, count: int = 1) -> str:
        """Stack memory of the function's frame, made in its entry block."""
        name = "%" + self.name("s")
        n = f", i32 {count}" if count != 1 else ""
        space = ", addrspace(5)" if self.gpu else ""
        self._entry.append(f"  {name} = alloca {kind}{n}, align {align}{space}")
        return name

    @property
    def stack(self) -> str:
        """How LLVM writes a pointer to stack memory."""
        return "ptr addrspace(5)" if self.gpu else "ptr"

    def entry(self, line: str) -> None:
        """An instruction of the entry block, before everything."""
        self._entry.append("  " + line)

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

    def call(self, name: str, returns: Type | str | None, arguments: list[tuple[str, str]]) -> str:
        """Call a declared function or an intrinsic by name; arguments are (LLVM type, value)."""
        kind = returns if isinstance(returns, str) else self.type(returns)
        self.module.declare(name, kind, [t.removesuffix(" immarg") for t, _ in arguments])
        text = f"call {kind} @{name}({', '.join(f'{t} {v}' for t, v in arguments)})"
        if kind == "void":
            self.emit(text)
            return ""
        return self.value(text)

    def body(self) -> str:
        """Everything between the braces."""
        return "\n".join(["entry:", *self._entry, "  br label %body", "body:", *self._body])
