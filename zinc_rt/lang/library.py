"""Kernels ready to call: from the cache where they are there, else compiled and kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from zinc_rt.lang.cache import CompileCache, cache_key
from zinc_rt.lang.compiler import Compiler
from zinc_rt.lang.errors import CompileError
from zinc_rt.lang.image import Code, Image
from zinc_rt.lang.kernel import Function, Static, language_fingerprint
from zinc_rt.lang.symbols import symbol_of
from zinc_rt.lang.target import Target


def image_key(fingerprint: bytes, symbol: str, target: Target) -> str:
    """Where the image of a kernel is in a cache. fingerprint: of its function."""
    return cache_key([language_fingerprint(), fingerprint, symbol, target.name, target.cpu, *target.features])


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
        self._cache = cache if cache is not None else CompileCache(None)
        self._compiler = compiler
        self._notify = notify
        self._code: dict[str, Code] = {}
        self._fingerprints: dict[Function, bytes] = {}
        self.compiled = 0  # kernels that were not in the cache

    def load(self, wanted: Iterable[tuple[Function, dict[str, Static]]]) -> None:
        """Make kernels ready; compile what is missing. Raises `KernelError`, `CompileError`, `ImageError`."""
        missing: dict[str, tuple[str, Function, dict[str, Static]]] = {}
        for function, constants in wanted:
            symbol = symbol_of(function, constants)
            if symbol in self._code or symbol in missing:
                continue
            key = self._key(function, symbol)
            image = self._cache.get(key)
            if image is not None:
                self._code[symbol] = image.load()
            else:
                missing[symbol] = key, function, constants
        if missing:
            self._compile(missing)

    def address(self, function: Function, constants: dict[str, Static] | None = None) -> int:
        """Where a kernel is, compiling it where `load` did not name it."""
        symbol = symbol_of(function, constants or {})
        if symbol not in self._code:
            self.load([(function, constants or {})])
        return self._code[symbol].address(symbol)

    def _key(self, function: Function, symbol: str) -> str:
        if function not in self._fingerprints:
            self._fingerprints[function] = function.fingerprint()
        return image_key(self._fingerprints[function], symbol, self.target)

    def _compile(self, missing: dict[str, tuple[str, Function, dict[str, Static]]]) -> None:
        # The front end is of no use to a start from the cache.
        from zinc_rt.lang.frontend import Spec, emit_module

        if self._notify is not None:
            self._notify(f"compiling {len(missing)} kernels for {self.target.name}")
        modules = [emit_module(symbol, [Spec(f, c)], self.target) for symbol, (_, f, c) in missing.items()]
        results = (self._compiler or Compiler()).compile_each(modules)
        failed: CompileError | None = None
        for (symbol, (key, _, _)), result in zip(missing.items(), results, strict=True):
            if isinstance(result, Image):
                self._cache.put(key, result)
                self._code[symbol] = result.load()
                self.compiled += 1
            else:
                failed = failed or result
        if failed is not None:
            raise failed
