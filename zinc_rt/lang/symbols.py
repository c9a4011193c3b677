"""The name under which a specialised kernel is exported."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from zinc_rt.lang.kernel import Function, Static


def symbol_of(function: Function, constants: Mapping[str, Static]) -> str:
    """The exported name of a kernel: its name in ASCII, and a short hash of its constants, if any."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", function.name)
    if name == function.name and not constants:
        return name
    text = repr((function.name, sorted(constants.items())))
    return f"{name}_{hashlib.sha256(text.encode()).hexdigest()[:10]}"
