"""Kernels for AMD GPUs with RDNA shader cores, in the kernel language; docs/how/numerics.md is their specification.

`catalogue` names them all with their arguments. Waves have 32 lanes unless a kernel says otherwise.
"""
