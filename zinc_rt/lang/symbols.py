"""The name under which a specialised kernel is exported."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from zinc_rt.lang.kernel import Function, Static


def symbol_of(function: Function, constants: Mapping[str, Static]) -> str:
    """The kernel's name, and a short hash of its constants where it has some."""
    if not constants:
        return function.name
    text = repr(sorted(constants.items()))
    return f"{function.name}_{hashlib.sha256(text.encode()).hexdigest()[:10]}"
