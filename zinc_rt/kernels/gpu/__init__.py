"""Kernels for GPUs, in the kernel language; docs/how/numerics.md is their specification.

They speak of waves of 32 lanes, workgroups and local memory, and of no instruction set. `catalogue` names them all with
their arguments. What a target has beside them is a package of its own (`kernels.amd`).
"""
