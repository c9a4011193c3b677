"""Errors of the kernel language and of its compile service."""

from __future__ import annotations

from zinc_rt.errors import ZincError


class LangError(ZincError):
    """Base of everything that compiling, loading or keeping a kernel can raise."""


class UnsupportedTarget(LangError):
    """The instruction-set level is unknown, or this machine cannot run it."""


class CompileError(LangError):
    """LLVM refuses a module, or its object cannot be linked. `module` names it, `problem` says why.

    lasting: the same module would fail again in the same way, so that the compile cache may remember it.
    """

    def __init__(self, problem: str, module: str = "", *, lasting: bool = False) -> None:
        super().__init__(f"cannot compile {module}: {problem}" if module else problem)
        self.problem = problem
        self.module = module
        self.lasting = lasting


class ImageError(LangError):
    """The bytes of a compiled image are damaged, or the image cannot be made executable here."""


class CacheError(LangError):
    """The compile cache cannot be shown or cleared. Runs never raise it: they go on without the cache."""
