"""The oracle: every kernel in NumPy, in the exact order of operations that docs/numerics.md states.

Two faces to each operation. `*_rows` functions are what the graph runs: arrays of rows, no checks beyond shape.
The plain names (`embed`, `rms_norm`, ...) are the kernel pages' single-row entry points with their errors.
"""
