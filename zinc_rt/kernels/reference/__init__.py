"""The arithmetic of the oracle in NumPy, in the exact order of operations that docs/how/numerics.md states.

The reference kernels themselves stand with their operations in `zinc_rt.ir.ops`; what several of them use is here.
"""
