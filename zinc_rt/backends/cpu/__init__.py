"""The CPU backend: a graph lowered once to a program of compiled kernels; a step is one call."""
