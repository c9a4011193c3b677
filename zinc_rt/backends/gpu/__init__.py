"""Graphs on GPUs, whichever driver runs them: a graph becomes dispatches of the kernels in `kernels.gpu`.

`lowering` makes them, `fusion` and `epilogues` join nodes into fewer, `placement` lays out memory and phases, `batches`
records the list of a step's shape, `backend` runs steps. `device` says what a driver has to offer.
"""
