"""Kernels for AMD's cores alone: the resident program, and those whose arguments lie in scalar registers.

`catalogue` names them. All others are in `kernels.gpu`.
"""
