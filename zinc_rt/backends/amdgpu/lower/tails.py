"""Products and sums of experts whose last workgroup does the norms and sums behind them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from zinc_rt.backends.amdgpu.chains import Chain
from zinc_rt.backends.amdgpu.joins import ExpertsDown, Normed
from zinc_rt.backends.amdgpu.lower.experts import down_arguments
from zinc_rt.backends.amdgpu.lowering import GPU, GpuLowering
from zinc_rt.backends.amdgpu.operations import BLOCKS, ArgumentBlock, TempSpec, block_of, padded_rows
from zinc_rt.backends.fusion import NormRows, Product
from zinc_rt.kernels.rdna.catalogue import FLOATS, TailForm, experts_down_norm, matvec_norm
from zinc_rt.kernels.rdna.tails import WAVES, GpuNormTail
from zinc_rt.numerics import GROUP


class Tail(NamedTuple):
    """What the last workgroup does: its form, its arguments, what it reads and what it writes."""

    form: TailForm
    block: ArgumentBlock
    reads: tuple[Hashable, ...]
    writes: tuple[Hashable, ...]


@GPU.lowers(Normed)
def normed(low: GpuLowering, n: Normed) -> None:
    """What makes the rows, then the norms and sums behind it."""
    tail = _tail(low, n)
    if isinstance(n.source, ExpertsDown):
        _experts(low, n.source, tail)
    else:
        _product(low, n.source, tail)


def _tail(low: GpuLowering, n: Normed) -> Tail:
    chain, last = n.chain, n.chain.last
    a, b, result = _operands(chain)
    quantized = isinstance(last, NormRows) and low.only_packed(result)
    packed = quantized or low.also_packed(result)
    plain = isinstance(last, NormRows) and not quantized
    # The last workgroup loads what all have stored.
    reads: tuple[Hashable, ...] = (n.source.y,)
    writes: tuple[Hashable, ...] = ()
    values: dict[str, Any] = {"counters": low.counters(n.node), "n_rows": lambda s: s.n_rows}
    for name, step in zip(("first", "second"), chain.before, strict=False):
        assert step.weight is not None
        values |= {name: low.at(step.weight), "eps": step.eps}
        if step.residual is not None:
            beside = step.residual if step.x == chain.before[0].y else step.x
            values["beside"] = low.at(beside)
            reads = (*reads, beside)
    if b is not None:
        other = b if a == chain.made else a
        total = last.total if isinstance(last, NormRows) else result
        assert total is not None
        values |= {"residual": low.at(other), "total": low.at(total)}
        reads, writes = (*reads, other), (total,)
    if packed:
        places = low.packed(result, low.width(result))
        values |= dict(zip(("q", "d", "s"), places, strict=True))
        writes = (*writes, *(place.key for place in places))
    if plain:
        values["y"] = low.at(result)
        writes = (*writes, result)
    factors = isinstance(last, NormRows) and (last.residual_scale, last.total_scale) != (None, None)
    if isinstance(last, NormRows):
        assert last.weight is not None
        own, whole = (1.0 if factor is None else factor for factor in (last.residual_scale, last.total_scale))
        values |= {"weight": low.at(last.weight), "eps": last.eps, "own_scale": own, "total_scale": whole}
    form = TailForm(len(chain.before), b is not None, factors, isinstance(last, NormRows), packed, plain)
    return Tail(form, ArgumentBlock(GpuNormTail, values), reads, writes)


def _operands(chain: Chain) -> tuple[int, int | None, int]:
    """What the last step adds, the second None where it adds nothing, and its result."""
    if isinstance(chain.last, NormRows):
        return chain.last.x, chain.last.residual, chain.last.y
    (a, b), (y,) = chain.last.node.inputs, chain.last.node.outputs
    return a, b, y


def _product(low: GpuLowering, n: Product, tail: Tail) -> None:
    kind = low.format_of(n.node, n.weight)
    n_out, n_in = (int(d) for d in low.graph.buffer(n.weight).shape)
    bias = () if n.bias is None else (low.at(n.bias),)
    entries = {
        m: matvec_norm(kind, m, tail.form, bias=bool(bias)) for m in BLOCKS if m <= padded_rows(low.sizes.n_rows)
    }
    low.out.kernels += entries.values()
    keys: tuple[Hashable, ...] = (n.x,) if kind in FLOATS else low.pack(n.node, n.x, n_in, "n_rows")
    units = n_in if kind in FLOATS else n_in // GROUP
    sources = (low.at(n.x),) if kind in FLOATS else tuple(map(TempSpec, keys))
    low.emit(
        n.node, lambda s: entries[block_of(s.n_rows)],
        lambda s: (-(-n_out // WAVES), -(-s.n_rows // block_of(s.n_rows))),
        (low.at(n.weight), *sources, *bias, low.at(n.y), units, n_out, tail.block), "n_rows", (*keys, *tail.reads),
        (n.y, *tail.writes), lambda s: s.n_rows * n_out * n_in,
    )  # fmt: skip


def _experts(low: GpuLowering, n: ExpertsDown, tail: Tail) -> None:
    made = down_arguments(low, n)
    entry = experts_down_norm(form=tail.form, **made.constants)
    low.emit(
        n.node, entry, lambda s: (-(-made.n_out // WAVES), s.n_rows),
        (made.block, tail.block), "n_rows", (*made.reads, *tail.reads), (n.y, *tail.writes),
        lambda s: s.n_rows * made.work,
    )  # fmt: skip
