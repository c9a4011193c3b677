"""The arithmetic of the oracle in NumPy, in the exact order of operations that docs/how/numerics.md states.

The reference kernels stand with their operations in `zinc_rt.ir.ops`. This package has the arithmetic that several of
them use.
"""
