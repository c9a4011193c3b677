"""Products and sums of experts whose last workgroup does the norms and sums behind them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from zinc_rt.backends.fusion import NormRows, Product
from zinc_rt.backends.gpu.fusion import ExpertsDown, Normed
from zinc_rt.backends.gpu.lower.experts import down_arguments
from zinc_rt.backends.gpu.lowering import GPU, GpuLowering
from zinc_rt.backends.gpu.operations import ArgumentBlock, TempSpec, block_of, blocks_of
from zinc_rt.kernels.gpu.catalogue import FLOATS, TailForm, experts_down_norm, matvec_norm, rows_before_norm
from zinc_rt.kernels.gpu.epilogue import WAVES, GpuNormTail
from zinc_rt.kernels.gpu.whole_norm import LONGEST, STEP
from zinc_rt.numerics import GROUP


class Tail(NamedTuple):
    """The work of the last workgroup: its form, its arguments, and the buffers that it reads and writes."""

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
    chain, last, result = n.chain, n.chain.last, n.chain.result
    norm = last if isinstance(last, NormRows) else None
    *between, other = chain.added
    values: dict[str, Any] = {"counters": low.counters(n.node), "n_rows": lambda s: s.n_rows}
    for place, step in zip(("first", "second"), chain.before, strict=False):
        values |= {place: _weight(low, step), "eps": step.eps}
    beside = [buffer for buffer in between if buffer is not None]
    if beside:
        values["beside"] = low.at(beside[0])
    factors = False
    if norm is not None:
        own, whole = norm.residual_scale, norm.total_scale
        factors = (own, whole) != (None, None)
        values |= {
            "weight": _weight(low, norm),
            "eps": norm.eps,
            "own_scale": 1.0 if own is None else own,
            "total_scale": 1.0 if whole is None else whole,
        }
    writes: tuple[Hashable, ...] = ()
    if other is not None:
        total = result if norm is None else norm.total
        assert total is not None
        values |= {"residual": low.at(other), "total": low.at(total)}
        writes = (total,)
    quantized = norm is not None and low.only_packed(result)
    packed, plain = quantized or low.also_packed(result), norm is not None and not quantized
    if packed:
        places = low.packed(result, low.width(result))
        values |= dict(zip(("q", "d", "s"), places, strict=True))
        writes = (*writes, *(place.key for place in places))
    if plain:
        values["y"] = low.at(result)
        writes = (*writes, result)
    width = low.width(result)
    whole = norm is not None and packed and not chain.before and width % STEP == 0 and width <= LONGEST
    form = TailForm(
        len(chain.before), other is not None, factors, norm is not None, packed, plain, width if whole else 0
    )
    # The last workgroup loads what all have stored.
    reads = (n.source.y, *beside, *(() if other is None else (other,)))
    return Tail(form, ArgumentBlock(GpuNormTail, values), reads, writes)


def _weight(low: GpuLowering, step: NormRows) -> TempSpec:
    assert step.weight is not None
    return low.at(step.weight)


def _product(low: GpuLowering, n: Product, tail: Tail) -> None:
    kind = low.format_of(n.node, n.weight)
    n_out, n_in = (int(d) for d in low.graph.buffer(n.weight).shape)
    bias = () if n.bias is None else (low.at(n.bias),)
    entries = {m: matvec_norm(kind, m, n_in, tail.form, bias=bool(bias)) for m in blocks_of(low.sizes.n_rows)}
    low.out.kernels += entries.values()
    keys: tuple[Hashable, ...] = (n.x,) if kind in FLOATS else low.pack(n.node, n.x, n_in, "n_rows")
    units = n_in if kind in FLOATS else n_in // GROUP
    sources = (low.at(n.x),) if kind in FLOATS else tuple(map(TempSpec, keys))
    low.emit(
        n.node,
        lambda s: entries[block_of(s.n_rows)],
        lambda s: (-(-n_out // rows_before_norm(block_of(s.n_rows))), -(-s.n_rows // block_of(s.n_rows))),
        (low.at(n.weight), *sources, *bias, low.at(n.y), units, n_out, tail.block),
        "n_rows",
        (*keys, *tail.reads),
        (n.y, *tail.writes),
        lambda s: s.n_rows * n_out * n_in,
    )


def _experts(low: GpuLowering, n: ExpertsDown, tail: Tail) -> None:
    made = down_arguments(low, n)
    entry = experts_down_norm(form=tail.form, **made.constants)
    low.emit(
        n.node,
        entry,
        lambda s: (-(-made.n_out // WAVES), s.n_rows),
        (made.block, tail.block),
        "n_rows",
        (*made.reads, *tail.reads),
        (n.y, *tail.writes),
        lambda s: s.n_rows * made.work,
    )
