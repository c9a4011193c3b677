"""Images of kernels: from the cache where they are there, else compiled once for all processes that want them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from zinc_rt.lang.cache import CompileCache
from zinc_rt.lang.compiler import Compiler
from zinc_rt.lang.errors import CompileError
from zinc_rt.lang.image import Image
from zinc_rt.utils.notices import Waiting

if TYPE_CHECKING:
    from zinc_rt.lang.compiler import Module

_LOOK_AGAIN: Final = 0.05  # seconds between two looks at what another process compiles
_TELL_AGAIN: Final = 2.0  # seconds between two lines about how far it is

_waited = 0.0
_waited_lock = threading.Lock()


def seconds_compiled() -> float:
    """Seconds that threads of this process have waited for kernels to be compiled, since it began."""
    return _waited


@dataclass(frozen=True)
class ImageSource:
    """An image: its key in the cache, and what makes the module that it is compiled from."""

    key: str
    module: Callable[[], Module]


class Builder:
    """Fetches or compiles images for one target. `compiled` counts those that this object compiled."""

    def __init__(
        self, cache: CompileCache, target: str, compiler: Compiler | None, notify: Callable[[str], None] | None
    ) -> None:
        self._cache = cache
        self._target = target  # for messages
        self._compiler = compiler
        self._notify = notify
        self.compiled = 0

    def images(self, wanted: Mapping[str, ImageSource]) -> dict[str, Image]:
        """The images under the names they are wanted by, in that order.

        What another process is compiling is waited for, unless that process takes longer than a compile may.
        Raises `KernelError`, and `CompileError` for the first that cannot be compiled; the others are kept.
        """
        found: dict[str, Image] = {}
        missing = self._fetch(wanted, found)
        if missing:
            started = time.monotonic()
            try:
                found |= self._build(missing)
            finally:
                _add_waited(time.monotonic() - started)
        return {name: found[name] for name in wanted}

    def _fetch(self, wanted: Mapping[str, ImageSource], found: dict[str, Image]) -> dict[str, ImageSource]:
        """Put what the cache has into `found`; the rest."""
        missing: dict[str, ImageSource] = {}
        for name, one in wanted.items():
            if (image := self._cache.get(one.key)) is not None:
                found[name] = image
            else:
                missing[name] = one
        return missing

    def _build(self, missing: Mapping[str, ImageSource]) -> dict[str, Image]:
        """Compile the images that no other process is compiling, then wait for theirs."""
        found: dict[str, Image] = {}
        compiler = self._compiler or Compiler()
        deadline: float | None = None
        while missing:
            late = deadline is not None and time.monotonic() > deadline
            with self._cache.claim([one.key for one in missing.values()]) as claimed:
                mine = {name: one for name, one in missing.items() if late or one.key in claimed}
                # Another process may have stored them between the look and the claim.
                if mine := self._fetch(mine, found):
                    found |= self._compile(mine, compiler)
            missing = {name: one for name, one in missing.items() if name not in found}
            if missing:
                if deadline is None:
                    deadline = time.monotonic() + compiler.timeout
                    wanted = _kernels(len(missing))
                    self._say(f"waiting for another process that compiles {wanted} for {self._target}")
                time.sleep(_LOOK_AGAIN)
        return found

    def _compile(self, missing: Mapping[str, ImageSource], compiler: Compiler) -> dict[str, Image]:
        total, told, before = len(missing), time.monotonic(), 0
        self._say(f"compiling {_kernels(total)} for {self._target}")

        def tell(done: int) -> None:
            nonlocal told, before
            if before < done < total and time.monotonic() - told > _TELL_AGAIN:
                told, before = time.monotonic(), done
                self._say(f"compiled {done} of {_kernels(total)}")

        results = compiler.compile_each([one.module() for one in missing.values()], done=tell)
        found: dict[str, Image] = {}
        failed: CompileError | None = None
        for (name, one), result in zip(missing.items(), results, strict=True):
            if isinstance(result, Image):
                self._cache.put(one.key, result)
                found[name] = result
                self.compiled += 1
            else:
                self._cache.put_failure(one.key, result)
                failed = failed or result
        if failed is not None:
            raise failed
        return found

    def _say(self, line: str) -> None:
        if self._notify is not None:
            self._notify(Waiting(line))


def _kernels(n: int) -> str:
    return f"{n} kernel" if n == 1 else f"{n} kernels"


def _add_waited(seconds: float) -> None:
    global _waited  # noqa: PLW0603  one clock for all builders of the process
    with _waited_lock:
        _waited += seconds
