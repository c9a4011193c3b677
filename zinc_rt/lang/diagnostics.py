"""Errors in a kernel's source, with file, line, expression, types and accepted forms."""

from __future__ import annotations

import ast

from zinc_rt.lang.errors import LangError


class KernelError(LangError):
    """A kernel's source is not accepted by the language.

    file, line: where; expression: the source text it is about; reason: the mistake and the accepted form; chain: the
    calls that led there, and kernel: what was being compiled, where it is in a helper.
    """

    def __init__(
        self, file: str, line: int, expression: str, reason: str, chain: tuple[str, ...] = (), kernel: str = ""
    ) -> None:
        self.file, self.line, self.expression, self.reason, self.chain = file, line, expression, reason, chain
        self.kernel = kernel
        via = "".join(f" (called from {where})" for where in chain)
        quoted = f"`{expression}`: " if expression else ""
        super().__init__(f"{file}:{line}: {quoted}{reason}{f' (in kernel {kernel})' if kernel else ''}{via}")

    def inside(self, kernel: str) -> KernelError:
        """The same error, which says what was being compiled if it is not evident."""
        if not self.chain:
            return self
        return KernelError(self.file, self.line, self.expression, self.reason, self.chain, kernel)


class Reject(Exception):
    """An error without file and line; the caller that knows them turns it into a `KernelError`."""


def text_of(node: ast.AST, limit: int = 100) -> str:
    """The source of an expression or of a statement's first line, shortened."""
    try:
        lines = ast.unparse(node).splitlines()
    except Exception:  # a tree that was not made by the parser
        return type(node).__name__
    if isinstance(node, ast.stmt):
        lines = [line for line in lines if not line.startswith("@")][:1]
    text = " ".join(" ".join(lines).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
