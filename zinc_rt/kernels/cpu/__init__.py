"""The CPU's kernels, written in the kernel language (`zinc_rt.lang`); docs/how/numerics.md is their specification.

Every kernel does a range of units of one operation: `kernel(arguments, step, first, last)`. What a unit is (a row, a
tile of 16 outputs, a head) stands in its docstring. Units of one operation are independent of each other.
"""
