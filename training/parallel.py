"""Data-parallel gradients on a CPU: one single-threaded process per core.

Threads inside each matrix product wait for the slowest core at every operation, which is very slow on a
shared machine. Here the processes meet only once per step and draw their micro-batches from a common
counter, so a core that is busy with other work simply does fewer of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import Tensor, nn

PATIENCE_S = 900  # a worker whose trainer was killed ends itself
Batch = Callable[[int], Tensor]  # number of a micro-batch -> i64[rows, length + 1]


def _bind(model: nn.Module, flat: Tensor) -> None:
    """Make every .grad a view into `flat`, so that backward accumulates there."""
    at = 0
    for p in model.parameters():
        p.grad = flat[at : at + p.numel()].view_as(p)
        at += p.numel()


def _drain(model: nn.Module, batch: Batch, first: int, count: int, ticket: Any, loss: Tensor) -> None:
    """Compute micro-batches until none is left; adds to the gradients and to loss f32[1]."""
    while True:
        with ticket.get_lock():
            mine = ticket.value
            ticket.value += 1
        if mine >= count:
            return
        rows = batch(first + mine)
        value = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten()) / count
        value.backward()
        loss += value.detach()


def _worker(
    model: nn.Module,
    grads: Tensor,
    losses: Tensor,
    ticket: Any,
    job: Any,
    gate: Any,
    make: Callable[[int], Batch],
) -> None:
    os.setsid()  # Linux shares the processor per session: without this, two processes count as one
    torch.set_num_threads(1)
    _bind(model, grads)
    batch, phase = None, -1
    while True:
        gate.wait(PATIENCE_S)  # a job is set
        wanted, first, count = job
        if count == 0:
            return
        if wanted != phase:
            batch, phase = make(wanted), wanted
        _drain(model, batch, first, count, ticket, losses)
        gate.wait()  # all gradients are complete


class Pool:
    """`processes` single-threaded processes that share the weights of `model`.

    `make(phase)` builds the batch source; it is called in each process and must give the same batches there.
    """

    def __init__(self, model: nn.Module, processes: int, make: Callable[[int], Batch]) -> None:
        torch.set_num_threads(1)
        ctx = mp.get_context("spawn")
        model.share_memory()
        size = sum(p.numel() for p in model.parameters())
        self.model, self.make = model, make
        self.grads = torch.zeros(processes, size).share_memory_()
        self.losses = torch.zeros(processes, 1).share_memory_()
        self.ticket, self.gate = ctx.Value("q", 0), ctx.Barrier(processes)
        self.job = ctx.Array("q", 3)  # phase, number of the first micro-batch, how many (0: stop)
        self.batch, self.phase = None, -1
        _bind(model, self.grads[0])
        self.workers = [
            ctx.Process(
                target=_worker,
                daemon=True,
                args=(model, self.grads[i], self.losses[i], self.ticket, self.job, self.gate, make),
            )
            for i in range(1, processes)
        ]
        for w in self.workers:
            w.start()

    def gradients(self, phase: int, first: int, count: int) -> float:
        """Leave the mean gradient of `count` micro-batches in .grad of the model; returns the mean loss."""
        if phase != self.phase:
            self.batch, self.phase = self.make(phase), phase
        self.grads.zero_()
        self.losses.zero_()
        self.ticket.value = 0
        self.job[:] = [phase, first, count]
        self.gate.wait()
        _drain(self.model, self.batch, first, count, self.ticket, self.losses[0])
        self.gate.wait()
        for other in self.grads[1:]:
            self.grads[0].add_(other)
        return float(self.losses.sum())

    def close(self) -> None:
        """End the worker processes."""
        self.job[:] = [0, 0, 0]
        self.gate.wait()
        for w in self.workers:
            w.join()
