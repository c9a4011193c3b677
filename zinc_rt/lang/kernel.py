"""Marking functions as kernels and helpers, and what identifies their meaning for the cache."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import sys
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, overload

from zinc_rt.lang.errors import LangError

Static = int | float | bool | str | None | tuple[Any, ...]


class Function:
    """A function written in the kernel language. `entry`: callable from outside; else it is inlined where called."""

    def __init__(self, fn: Callable[..., Any], *, entry: bool, workgroup: int = 32) -> None:
        if not isinstance(fn, types.FunctionType):
            raise LangError(f"{fn!r} is no plain function; kernels and helpers are functions")
        self.fn, self.entry, self.name, self.workgroup = fn, entry, fn.__name__, workgroup
        self.__doc__ = fn.__doc__
        self.__name__, self.__qualname__, self.__module__ = fn.__name__, fn.__qualname__, fn.__module__

    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise LangError(f"{self.name} is written in the kernel language; compile it, or call it inside a kernel")

    def __repr__(self) -> str:
        return f"<{'kernel' if self.entry else 'inline'} {self.fn.__module__}.{self.name}>"

    @functools.cached_property
    def file(self) -> str:
        """Source file as messages show it: from the package's parent folder where it lies in a package."""
        path = Path(self.fn.__code__.co_filename)
        package = self.fn.__module__.split(".")[0]
        if package in path.parts and package != "__main__":
            return "/".join(path.parts[len(path.parts) - 1 - path.parts[::-1].index(package) :])
        return path.name

    @functools.cached_property
    def tree(self) -> ast.FunctionDef:
        """The parsed source, with the file's line numbers. Raises `LangError` where there is no source."""
        try:
            source, first = inspect.getsourcelines(self.fn)
        except (OSError, TypeError) as error:
            raise LangError(
                f"the source of {self.name} cannot be read ({error}); kernels must live in a file"
            ) from None
        tree = ast.parse(textwrap.dedent("".join(source)))
        ast.increment_lineno(tree, first - 1)
        node = tree.body[0]
        if not isinstance(node, ast.FunctionDef):
            raise LangError(f"{self.file}:{first}: {self.name} must be a plain `def`")
        return node

    @functools.cached_property
    def scope(self) -> Mapping[str, Any]:
        """Names that the body sees from outside: module globals, then closure."""
        closure = inspect.getclosurevars(self.fn).nonlocals if self.fn.__closure__ else {}
        return {**self.fn.__globals__, **closure}

    def fingerprint(self) -> bytes:
        """A hash of everything that the meaning rests on: the source files of this function and of every helper it
        reaches, and the plain constants that they take from elsewhere.
        """
        digest = hashlib.sha256()
        for part in sorted(set(_parts(self, set()))):
            digest.update(part)
        return digest.digest()


@overload
def kernel(fn: Callable[..., Any]) -> Function: ...
@overload
def kernel(*, workgroup: int = 32) -> Callable[[Callable[..., Any]], Function]: ...
def kernel(
    fn: Callable[..., Any] | None = None, *, workgroup: int = 32
) -> Function | Callable[[Callable[..., Any]], Function]:
    """Decorator: an entry point. Parameters annotated with types of the language are arguments; those annotated with
    plain Python types (`int`, `bool`, `str`, `tuple`) are compile-time constants that specialise it.

    workgroup: work-items of a workgroup on a GPU.
    """
    if fn is None:
        return lambda function: Function(function, entry=True, workgroup=workgroup)
    return Function(fn, entry=True, workgroup=workgroup)


def inline(fn: Callable[..., Any]) -> Function:
    """Decorator: a helper that is inlined where it is called. Unannotated parameters take anything."""
    return Function(fn, entry=False)


@functools.lru_cache(maxsize=256)
def _file_hash(path: str) -> bytes:
    try:
        return hashlib.sha256(Path(path).read_bytes()).digest()
    except OSError:
        return b""


def _parts(function: Function, seen: set[int]) -> Iterator[bytes]:
    if id(function) in seen:
        return
    seen.add(id(function))
    code = function.fn.__code__
    yield (
        function.name.encode() + b"=" + (_file_hash(code.co_filename) or repr((code.co_code, code.co_consts)).encode())
    )
    for name in sorted(_names(code)):
        value = function.scope.get(name)
        if isinstance(value, Function):
            yield from _parts(value, seen)
        elif isinstance(value, types.ModuleType):
            yield f"{name}={value.__name__}:".encode() + _file_hash(getattr(value, "__file__", None) or "")
        elif isinstance(value, int | float | str | bool | tuple) or type(value).__module__.startswith("zinc_rt.lang."):
            yield f"{name}={value!r}".encode()


def _names(code: types.CodeType) -> set[str]:
    inner = (_names(c) for c in code.co_consts if isinstance(c, types.CodeType))
    return set(code.co_names) | set(code.co_freevars) | {name for names in inner for name in names}


@functools.cache
def language_fingerprint() -> bytes:
    """A hash of the compiler's own source: another front end means other code."""
    folder = Path(__file__).parent
    digest = hashlib.sha256(sys.version.split()[0].encode())
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.name.encode() + _file_hash(str(path)))
    return digest.digest()
