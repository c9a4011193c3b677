"""Graphs on AMD GPUs: a graph becomes dispatches of the kernels in `kernels.gpu`, recorded once for a step's shape."""
