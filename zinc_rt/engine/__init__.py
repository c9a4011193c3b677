"""The engine: a device with a model on it, the KV cache of its sequences, and the one step.

The names of `zinc_rt.engine.engine` can be taken from here; they are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zinc_rt.engine.engine import Device as Device
    from zinc_rt.engine.engine import Engine as Engine
    from zinc_rt.engine.engine import Options as Options
    from zinc_rt.engine.engine import SequenceChunk as SequenceChunk


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("zinc_rt.engine.engine"), name)
