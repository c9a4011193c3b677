"""The lowering of each built-in function to LLVM IR. `WORDS` holds them all once the modules here are imported."""

from zinc_rt.lang.lower import control, dot, gpu, lookup, maths, memory, parts, threads, tiles, vectors  # noqa: F401
from zinc_rt.lang.lower.registry import LOWERINGS

__all__ = ["LOWERINGS"]
