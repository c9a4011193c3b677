"""Why bytes are no `.zrt` file that can be used."""

from __future__ import annotations

from zinc_rt.errors import ZincError


class ZrtError(ZincError):
    """field: what is wrong; value: what the file has there; limit: what it may be."""

    def __init__(self, field: str, value: object, limit: str, where: str = "") -> None:
        super().__init__(f"{where + ': ' if where else ''}{field} is {value}; {limit}")
        self.field, self.value, self.limit, self.where = field, value, limit, where

    def at(self, where: str) -> ZrtError:
        """The same with the file's name."""
        return type(self)(self.field, self.value, self.limit, where)


class ZrtTruncated(ZrtError):
    """The file has another length than its fields say."""


class NotZrt(ZrtError):
    """The magic number is another: this is no `.zrt` file."""


class UnsupportedAbi(ZrtError):
    """The file's form is of another release."""


class UnsupportedGpuTarget(ZrtError):
    """The code is for a GPU that kernels are not made for here."""


class ZrtDamaged(ZrtError):
    """The checksum does not hold."""


class InvalidField(ZrtError):
    """A field is outside of its limit, or contradicts another."""
