"""The operations: `reference` in NumPy, the oracle; `cpu`, `gpu` and `amd` in the kernel language.

The names of the export page `kernels` are reachable here, too; `zinc_rt.seed.kernels` has them.
"""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    page = None if name.startswith("_") else importlib.import_module("zinc_rt.seed.kernels")
    if page is None or name not in page.__all__:
        raise AttributeError(f"module 'zinc_rt.kernels' has no attribute {name!r}")
    return getattr(page, name)
