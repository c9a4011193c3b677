"""Packets: one kernel call with its operands, and the lists and batches that hold them in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from zinc_rt.ir.op import Op

if TYPE_CHECKING:
    from zinc_rt.gguf import GGMLType
    from zinc_rt.kernels.reference.arith import F32

    RawBytes = bytes | bytearray | memoryview | npt.NDArray[np.uint8]


class Params(Protocol):
    """A packet's operands. `run` executes the kernel on them; kernel errors propagate."""

    def run(self) -> None:
        """Execute."""


@dataclass(frozen=True)
class EmbedParams:
    """Operands of `kernels.embed`."""

    raw_data: RawBytes
    tensor_type: GGMLType
    token_id: int
    hidden_dim: int
    vocab_size: int
    output: F32

    def run(self) -> None:
        """Raises `TokenOutOfRange`, `ShapeMismatch`."""
        from zinc_rt.kernels import embed

        embed(**vars(self))


@dataclass(frozen=True)
class RmsNormParams:
    """Operands of `kernels.rms_norm`."""

    input: F32
    weight: F32
    output: F32
    eps: float

    def run(self) -> None:
        """Raises `EmptyInput`, `ShapeMismatch`."""
        from zinc_rt.kernels import rms_norm

        rms_norm(**vars(self))


@dataclass(frozen=True)
class LmHeadParams:
    """Operands of `kernels.lm_head`."""

    raw_data: RawBytes
    tensor_type: GGMLType
    hidden: F32
    row_scratch: F32
    logits: F32

    def run(self) -> None:
        """Raises `EmptyInput`, `ShapeMismatch`."""
        from zinc_rt.kernels import lm_head

        lm_head(**vars(self))


@dataclass(frozen=True)
class SwigluParams:
    """Operands of `kernels.swiglu`."""

    gate: F32
    up: F32
    output: F32

    def run(self) -> None:
        """Raises `EmptyInput`, `ShapeMismatch`."""
        from zinc_rt.kernels import swiglu

        swiglu(**vars(self))


@dataclass(frozen=True)
class ArgmaxParams:
    """Operands of `kernels.argmax`."""

    logits: F32
    output: npt.NDArray[np.integer]

    def run(self) -> None:
        """Raises `EmptyInput`, `ShapeMismatch`."""
        from zinc_rt.kernels import argmax

        argmax(**vars(self))


@dataclass(frozen=True)
class Call:
    """Operands already bound: a graph node lowered to a function of the step's buffers."""

    run: Callable[[], None]


@dataclass(frozen=True)
class Packet:
    """One operation of a batch. `name` is the graph node's, for messages; a barrier has no operands."""

    op: Op
    params: Params | None
    name: str = ""

    @classmethod
    def embed(cls, params: EmbedParams) -> Packet:
        """A single-row embedding lookup."""
        return cls(Op.EMBED, params)

    @classmethod
    def rms_norm(cls, params: RmsNormParams) -> Packet:
        """A single-row RMS norm."""
        return cls(Op.RMS_NORM, params)

    @classmethod
    def lm_head(cls, params: LmHeadParams) -> Packet:
        """A single-row output projection."""
        return cls(Op.LM_HEAD, params)

    @classmethod
    def swiglu(cls, params: SwigluParams) -> Packet:
        """A single-row SwiGLU."""
        return cls(Op.SWIGLU, params)

    @classmethod
    def argmax(cls, params: ArgmaxParams) -> Packet:
        """A single-row argmax."""
        return cls(Op.ARGMAX, params)

    @classmethod
    def barrier(cls) -> Packet:
        """Everything before it is finished before anything after it starts."""
        return cls(Op.BARRIER, None)


class PacketList:
    """A growing list of packets."""

    def __init__(self) -> None:
        self._packets: list[Packet] = []

    @classmethod
    def init(cls) -> PacketList:
        """An empty list."""
        return cls()

    def deinit(self) -> None:
        """Drop the packets; the list is empty again."""
        self.clear()

    def append(self, packet: Packet) -> None:
        """Add a packet at the end."""
        self._packets.append(packet)

    def append_barrier(self) -> None:
        """Add a barrier at the end."""
        self._packets.append(Packet.barrier())

    def slice(self) -> tuple[Packet, ...]:
        """The packets so far, in order; later appends do not show in it."""
        return tuple(self._packets)

    def len(self) -> int:
        """The number of packets."""
        return len(self._packets)

    def clear(self) -> None:
        """Remove all packets."""
        self._packets.clear()

    def __len__(self) -> int:
        return len(self._packets)

    def __iter__(self) -> Iterator[Packet]:
        return iter(self.slice())


@dataclass(frozen=True)
class LoweredGraph:
    """Packets in order and, for a lowered graph, the host's view of its step data.

    inputs: by buffer name, arrays that the caller fills before `submit`; outputs: arrays valid after `wait`, until the
    next `submit`. counts: i32[2], the step's n_rows and n_logits: rows past them are neither read nor written.
    limits: what the batch was lowered for, the most that counts may be.
    native: whether it is a program of compiled kernels, which only the backend that made it can run.
    """

    packets: Sequence[Packet]
    inputs: Mapping[str, npt.NDArray[np.int32]] = field(default_factory=dict)
    outputs: Mapping[str, npt.NDArray[np.generic]] = field(default_factory=dict)
    counts: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(2, np.int32))
    limits: tuple[int, int] | None = None
    native: ClassVar[bool] = False
