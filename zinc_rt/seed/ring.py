"""The page `ring`: what runs a graph behind one interface, and packets, each one call of a kernel of `kernels`.

packets = PacketList.init()
packets.append(Packet.rms_norm(RmsNormParams(x, weight, normed, 1e-5)))
packets.append(Packet.argmax(ArgmaxParams(normed, token)))
CpuRing.init().submit_and_wait(PacketBatch(packets.slice()))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.base import Backend as Ring
from zinc_rt.backends.base import Capacity as Sizes
from zinc_rt.backends.base import StepFence as Fence
from zinc_rt.ir.op import Op
from zinc_rt.seed import kernels

if TYPE_CHECKING:
    from zinc_rt.gguf import GGMLType
    from zinc_rt.kernels.reference.arith import F32
    from zinc_rt.seed.kernels.projection import RawBytes

__all__ = [
    "ArgmaxParams", "EmbedParams", "Fence", "LmHeadParams", "Packet", "PacketBatch", "PacketList", "Params", "Ring",
    "RmsNormParams", "Sizes", "SwigluParams",
]  # fmt: skip


@dataclass(frozen=True)
class EmbedParams:
    """Operands of `kernels.embed`."""

    raw_data: RawBytes
    tensor_type: GGMLType
    token_id: int
    hidden_dim: int
    vocab_size: int
    output: F32


@dataclass(frozen=True)
class RmsNormParams:
    """Operands of `kernels.rms_norm`."""

    input: F32
    weight: F32
    output: F32
    eps: float


@dataclass(frozen=True)
class LmHeadParams:
    """Operands of `kernels.lm_head`."""

    raw_data: RawBytes
    tensor_type: GGMLType
    hidden: F32
    row_scratch: F32
    logits: F32


@dataclass(frozen=True)
class SwigluParams:
    """Operands of `kernels.swiglu`."""

    gate: F32
    up: F32
    output: F32


@dataclass(frozen=True)
class ArgmaxParams:
    """Operands of `kernels.argmax`."""

    logits: F32
    output: npt.NDArray[np.integer]


Params = EmbedParams | RmsNormParams | LmHeadParams | SwigluParams | ArgmaxParams


@dataclass(frozen=True)
class Packet:
    """One operation of a batch; a barrier has no operands."""

    op: Op
    params: Params | None

    @classmethod
    def embed(cls, params: EmbedParams) -> Packet:
        """A row of an embedding."""
        return cls(Op.EMBED, params)

    @classmethod
    def rms_norm(cls, params: RmsNormParams) -> Packet:
        """An RMS norm of one row."""
        return cls(Op.RMS_NORM, params)

    @classmethod
    def lm_head(cls, params: LmHeadParams) -> Packet:
        """The output projection of one row."""
        return cls(Op.LM_HEAD, params)

    @classmethod
    def swiglu(cls, params: SwigluParams) -> Packet:
        """SwiGLU of one row."""
        return cls(Op.SWIGLU, params)

    @classmethod
    def argmax(cls, params: ArgmaxParams) -> Packet:
        """The index of a row's largest value."""
        return cls(Op.ARGMAX, params)

    @classmethod
    def barrier(cls) -> Packet:
        """What is before it is finished before what is after it starts."""
        return cls(Op.BARRIER, None)

    def run(self) -> None:
        """Run the kernel; a barrier does nothing. Raises what the kernel raises."""
        if self.params is not None:
            getattr(kernels, self.op.name.lower())(**vars(self.params))


@dataclass(frozen=True)
class PacketBatch:
    """Packets in the order in which they run."""

    packets: Sequence[Packet]


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
