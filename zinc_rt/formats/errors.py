"""The error of a record that a decoder does not know."""

from __future__ import annotations

from zinc_rt.errors import ZincError


class UnknownFormat(ZincError):
    """A format whose record says something that a decoder, a layout or a kernel does not know."""

    def __init__(self, name: str, part: str, value: object, where: str) -> None:
        super().__init__(f"format {name}: {where} does not know {part} {str(value)!r}")
        self.name, self.part, self.value, self.where = name, part, value, where
