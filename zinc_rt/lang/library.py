"""Kernels ready to call: from the cache where they are there, else compiled and kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from zinc_rt.lang.building import Builder, ImageSource
from zinc_rt.lang.cache import CompileCache, cache_key
from zinc_rt.lang.compiler import Compiler
from zinc_rt.lang.image import Code
from zinc_rt.lang.kernel import Function, Static, language_fingerprint
from zinc_rt.lang.symbols import symbol_of
from zinc_rt.lang.target import Target

if TYPE_CHECKING:
    from zinc_rt.lang.compiler import Module


def image_key(fingerprint: bytes, symbol: str, target: Target) -> str:
    """The cache key of a kernel's image. fingerprint: of its function."""
    return cache_key(
        [
            language_fingerprint(),
            fingerprint,
            symbol,
            target.name,
            target.cpu,
            *target.features,
            *target.options,
            *sorted(target.isa),
        ]
    )


class Library:
    """The kernels of one target. A kernel is named by its function and constants; each is loaded once."""

    def __init__(
        self,
        target: Target,
        cache: CompileCache | None = None,
        compiler: Compiler | None = None,
        notify: Callable[[str], None] | None = None,
    ) -> None:
        self.target = target
        self.cache = cache if cache is not None else CompileCache(None)
        self._builder = Builder(self.cache, target.name, compiler, notify)
        self._code: dict[str, Code] = {}

    @property
    def compiled(self) -> int:
        """Kernels that were not in the cache."""
        return self._builder.compiled

    def load(self, kernels: Iterable[tuple[Function, dict[str, Static]]]) -> None:
        """Make kernels ready; compile what is missing. Raises `KernelError`, `CompileError`, `ImageError`."""
        wanted: dict[str, ImageSource] = {}
        for function, constants in kernels:
            symbol = symbol_of(function, constants)
            if symbol not in self._code and symbol not in wanted:
                wanted[symbol] = ImageSource(
                    image_key(function.fingerprint(), symbol, self.target),
                    partial(_module, symbol, function, constants, self.target),
                )
        for symbol, image in self._builder.images(wanted).items():
            self._code[symbol] = image.load()

    def address(self, function: Function, constants: dict[str, Static] | None = None) -> int:
        """The address of a kernel, which is compiled if `load` did not name it."""
        symbol = symbol_of(function, constants or {})
        if symbol not in self._code:
            self.load([(function, constants or {})])
        return self._code[symbol].address(symbol)

    def key(self, function: Function, constants: dict[str, Static]) -> str:
        """What names a kernel's image in the cache: everything that its code depends on."""
        return image_key(function.fingerprint(), symbol_of(function, constants), self.target)


def _module(symbol: str, function: Function, constants: dict[str, Static], target: Target) -> Module:
    # Imported here: a start from the cache needs no front end.
    from zinc_rt.lang.frontend import Spec, emit_module

    return emit_module(symbol, [Spec(function, constants)], target)
