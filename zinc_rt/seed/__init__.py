"""The seed API: the export pages `kmd`, `kfd`, `cs`, `umq`, `pm4_packet`, `ring`, `cpu_ring`, `kernels`, `fast_pool`.

`docs/how/seed.md` says what they are. Nothing in the runtime imports this package; it is written on the runtime's own
driver (`zinc_rt.amdgpu`) and backends, and `zinc check` shares its probes with it.
"""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = [
    "cpu_ring",
    "cs",
    "engine",
    "fast_pool",
    "ir_graph",
    "ir_op",
    "kernels",
    "kfd",
    "kmd",
    "pm4_packet",
    "ring",
    "umq",
]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
