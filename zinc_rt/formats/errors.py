"""The error of a record that a decoder does not know."""

from __future__ import annotations

from zinc_rt.errors import ZincError


class UnknownFormat(ZincError):
    """A format whose record says something that a decoder, a layout or a kernel does not know."""

    def __init__(self, name: str, what: str, value: object, where: str) -> None:
        super().__init__(f"format {name}: {where} does not know {what} {str(value)!r}")
        self.name, self.what, self.value, self.where = name, what, value, where
