"""The decorators for kernels and helpers, and the fingerprint of a function for the cache."""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import hashlib
import linecache
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, overload

from zinc_rt.lang.diagnostics import KernelError
from zinc_rt.lang.errors import LangError
from zinc_rt.lang.occupancy import MAX_WAVES
from zinc_rt.lang.signature import Signature
from zinc_rt.lang.target import SMALL_GROUPS, Target
from zinc_rt.lang.types import Type

Static = int | float | bool | str | None | tuple[Any, ...] | Type
"""The Python types of compile-time constants."""
_PACKAGE = __name__.partition(".")[0] + "."


class Function:
    """A function written in the kernel language. `entry`: callable from outside; else it is inlined where called."""

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        entry: bool,
        workgroup: int = 32,
        wave: int = 32,
        occupancy: int = 0,
        resident: int = 0,
        small: int = 0,
    ) -> None:
        if not isinstance(fn, types.FunctionType):
            raise LangError(f"{fn!r} is no plain function; kernels and helpers are functions")
        if type(workgroup) is not int or not 1 <= workgroup <= 1024:
            raise LangError(f"{fn.__name__}: workgroup must be 1 to 1024 work-items, got {workgroup!r}")
        if wave not in (32, 64):
            raise LangError(f"{fn.__name__}: a wave has 32 or 64 lanes, got {wave!r}")
        if type(occupancy) is not int or not 0 <= occupancy <= MAX_WAVES:
            raise LangError(f"{fn.__name__}: occupancy must be 0 to {MAX_WAVES} waves of a SIMD, got {occupancy!r}")
        self.fn, self.entry, self.name, self.workgroup, self.wave = fn, entry, fn.__name__, workgroup, wave
        self.occupancy, self.small = occupancy, small or workgroup
        self.resident = resident or self.small
        self._fingerprint = b""
        self.__doc__ = fn.__doc__
        self.__name__, self.__qualname__, self.__module__ = fn.__name__, fn.__qualname__, fn.__module__

    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise LangError(f"{self.name} is written in the kernel language; compile it, or call it inside a kernel")

    def lanes(self, target: Target) -> int:
        """Work-items of a workgroup on a GPU, where the kernel is no part of a resident program."""
        return self.small if SMALL_GROUPS in target.isa else self.workgroup

    def __repr__(self) -> str:
        return f"<{'kernel' if self.entry else 'inline'} {self.fn.__module__}.{self.name}>"

    @functools.cached_property
    def file(self) -> str:
        """Source file as messages show it: from the package's parent folder where it lies in a package."""
        path = Path(self.fn.__code__.co_filename)
        package = (self.fn.__module__ or "__main__").split(".")[0]  # made by exec, it has no module
        if package in path.parts and package != "__main__":
            return "/".join(path.parts[len(path.parts) - 1 - path.parts[::-1].index(package) :])
        return path.name

    @functools.cached_property
    def tree(self) -> ast.FunctionDef:
        """The parsed source, with the file's line numbers. Raises `KernelError` where there is none."""
        code = self.fn.__code__
        node = _definitions(code.co_filename, self.fn.__globals__).get(code.co_firstlineno)
        if isinstance(node, ast.FunctionDef) and node.name == self.name:
            return node
        if isinstance(node, ast.AsyncFunctionDef) or self.name == "<lambda>":
            reason = f"{self.name} must be a plain `def`"
        elif linecache.getlines(code.co_filename, self.fn.__globals__):
            reason = f"the source of {self.name} is not there (was the file changed after its import?)"
        else:
            reason = f"the source of {self.name} cannot be read; kernels must live in a file"
        raise KernelError(self.file, code.co_firstlineno, "", reason)

    @functools.cached_property
    def signature(self) -> Signature:
        """The parameters of the function."""
        return Signature.of(self.fn)

    @functools.cached_property
    def sites(self) -> Mapping[str, int]:
        """The number of assignments to each local name in the body; 2 stands for more, and for `x += 1`."""
        count: dict[str, int] = {}
        waiting: list[ast.AST] = list(self.tree.body)
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.comprehension):
                waiting += [node.iter, *node.ifs]  # its names are its own
                continue
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                count[node.id] = min(count.get(node.id, 0) + 1, 2)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                count[node.target.id] = 2
            waiting += ast.iter_child_nodes(node)
        return count

    def lookup(self, name: str, default: Any = None) -> Any:
        """The value of a name from outside the body: of an enclosing function, else of the module."""
        if name in self.fn.__code__.co_freevars and self.fn.__closure__:
            cell = self.fn.__closure__[self.fn.__code__.co_freevars.index(name)]
            try:
                return cell.cell_contents
            except ValueError:  # not assigned yet
                return default
        return self.fn.__globals__.get(name, default)

    def fingerprint(self) -> bytes:
        """A hash of everything that determines the meaning: the source files of this function and of every helper it
        reaches, and the plain constants that they take from elsewhere.

        Computed once for a function of this package, whose constants do not change.
        """
        if self._fingerprint:
            return self._fingerprint
        digest = hashlib.sha256()
        for part in sorted(_Reached(self).parts):
            digest.update(part)
        if (self.fn.__module__ or "").startswith(_PACKAGE):
            self._fingerprint = digest.digest()
        return digest.digest()


def _definitions(path: str, scope: dict[str, Any]) -> Mapping[int, ast.AST]:
    """The functions of a file by the line where they start, decorators included."""
    linecache.checkcache(path)
    return _parsed("".join(linecache.getlines(path, scope)))


@functools.lru_cache(maxsize=64)
def _parsed(source: str) -> Mapping[int, ast.AST]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return {}
    found = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return {min([n.lineno, *(d.lineno for d in n.decorator_list)]): n for n in found}


@overload
def kernel(fn: Callable[..., Any]) -> Function: ...
@overload
def kernel(
    *, workgroup: int = 32, wave: int = 32, occupancy: int = 0, small: int = 0, resident: int = 0
) -> Callable[[Callable[..., Any]], Function]: ...
def kernel(
    fn: Callable[..., Any] | None = None,
    *,
    workgroup: int = 32,
    wave: int = 32,
    occupancy: int = 0,
    resident: int = 0,
    small: int = 0,
) -> Function | Callable[[Callable[..., Any]], Function]:
    """Decorator: marks a function as a kernel, which can be compiled and called.

    Parameters annotated with types of the language are run-time arguments: integers, f32, f64, `boolean` and pointers.
    Parameters annotated with `int`, `float`, `bool`, `str`, `tuple` or `type` are compile-time constants. They may have
    defaults, and later annotations may use them: `p: ptr[T]`. GPU kernels return nothing.

    `@kernel(workgroup=64)` sets the work-items of a workgroup on a GPU, 1 to 1024 (default: 32). `@kernel(wave=64)`
    sets the lanes of a wave, 32 or 64 (default: 32); with 64 the kernel cannot use the functions for 32 lanes.
    `@kernel(occupancy=8)` has the compiler leave registers for at least so many waves of a SIMD, 1 to 16; 0, the
    default, for one workgroup. `@kernel(small=256)` sets the work-items where `target_has("small_groups")`,
    `@kernel(resident=256)` where the kernel is part of a resident program, which `target_has("resident")` tells it and
    which has small groups, too (default: as many as otherwise).
    """
    options = {"workgroup": workgroup, "wave": wave, "occupancy": occupancy, "resident": resident, "small": small}
    if fn is None:
        return lambda function: Function(function, entry=True, **options)
    return Function(fn, entry=True, **options)


def inline(fn: Callable[..., Any]) -> Function:
    """Decorator: marks a function as a helper, which is inlined at each call.

    A helper may return any value, tuples included; recursion is refused. Unannotated parameters take any value;
    annotated ones are checked, `int` and the other Python types at compile time.
    """
    return Function(fn, entry=False)


@functools.lru_cache(maxsize=256)
def _file_hash(path: str) -> bytes:
    try:
        return hashlib.sha256(Path(path).read_bytes()).digest()
    except OSError:
        return b""


class _Reached:
    """What the meaning of a function rests on, as texts: of each function it reaches, and of each value these take
    from elsewhere. What many functions take is looked at once.
    """

    def __init__(self, function: Function) -> None:
        self.parts: set[bytes] = set()
        self._functions: dict[int, Function] = {id(function): function}
        self._values: dict[tuple[str, int], Any] = {}  # kept, so that no other value gets the number
        waiting = [function]
        while waiting:
            waiting += self._through(waiting.pop())

    def _through(self, function: Function) -> list[Function]:
        """Add what a function takes; the functions that are reached for the first time."""
        code = function.fn.__code__
        source = _file_hash(code.co_filename) or repr((code.co_code, code.co_consts)).encode()
        self.parts.add(function.name.encode() + b"=" + source)
        found: list[Function] = []
        names = _names(code)
        for name in names:
            value = function.lookup(name)
            if isinstance(value, types.ModuleType):
                self.parts.add(
                    f"{name}={value.__name__}:".encode() + _file_hash(getattr(value, "__file__", None) or "")
                )
                for inner in names:  # any of these may be read from it
                    if (within := getattr(value, inner, None)) is not None:
                        self._value(f"{name}.{inner}", within, found)
            elif value is not None:
                self._value(name, value, found)
        return found

    def _value(self, name: str, value: Any, found: list[Function]) -> None:
        if isinstance(value, Function):
            if id(value) not in self._functions:
                self._functions[id(value)] = value
                found.append(value)
            return
        key = name, id(value)
        if key not in self._values:
            self._values[key] = value
            self.parts |= set(_value_parts(name, value))


def _value_parts(name: str, value: Any) -> Iterator[bytes]:
    if isinstance(value, _PLAIN) or dataclasses.is_dataclass(value):
        yield f"{name}={_stable(value)}".encode()
        for kind in _classes(value):  # kernels may read its properties
            yield f"{kind.__qualname__}:".encode() + _file_hash(sys.modules[kind.__module__].__file__ or "")
    elif isinstance(value, type) and issubclass(value, enum.Enum):
        yield f"{name}={[(m.name, m.value) for m in value]}".encode()


def _classes(value: Any) -> set[type]:
    """The classes of records among a value's parts."""
    if isinstance(value, dict):
        return set().union(*(_classes(v) for v in value.values()))
    if isinstance(value, tuple | list | set | frozenset):
        return set().union(*(_classes(v) for v in value))
    return {type(value)} if dataclasses.is_dataclass(value) and not isinstance(value, type) else set()


def _stable(value: Any) -> str:
    """`repr`, the same in every process: sets have no order of their own."""
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(_stable, value)))}}}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_stable, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_stable(k)}: {_stable(v)}' for k, v in value.items())}}}"
    return repr(value)


_PLAIN = (bool, int, float, str, tuple, list, dict, set, frozenset, range, enum.Enum)


@functools.lru_cache(maxsize=4096)
def _names(code: types.CodeType) -> frozenset[str]:
    inner = (_names(c) for c in code.co_consts if isinstance(c, types.CodeType))
    return frozenset(code.co_names).union(code.co_freevars, *inner)


@functools.cache
def language_fingerprint() -> bytes:
    """A hash of the compiler's own source: another front end means other code."""
    folder = Path(__file__).parent
    digest = hashlib.sha256(sys.version.split()[0].encode())
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.name.encode() + _file_hash(str(path)))
    return digest.digest()
