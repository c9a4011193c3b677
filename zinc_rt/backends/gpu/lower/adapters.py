"""Products of low rank that adapters add."""

from __future__ import annotations

from zinc_rt.backends.fusion import Single
from zinc_rt.backends.gpu.lowering import GPU, GpuLowering
from zinc_rt.backends.gpu.operations import ArgumentBlock
from zinc_rt.ir.graph import DType
from zinc_rt.ir.op import Op
from zinc_rt.kernels.gpu import adapters
from zinc_rt.kernels.gpu.adapters import RANKS, GpuLoraArgs
from zinc_rt.kernels.gpu.catalogue import KernelEntry
from zinc_rt.lang.frontend import Spec
from zinc_rt.numerics import GROUP


@GPU.lowers(Op.LORA_A)
def lora_a(low: GpuLowering, single: Single) -> None:
    """t = A x."""
    node, t = single.node, single.node.outputs[0]
    x, a, pairs, listed, *more = node.inputs
    *counts, tiles, n, _ = (int(d) for d in low.graph.buffer(a).shape)
    m = tiles * RANKS
    lookup, wanted, used = "lookup" in node.attrs, "wanted" in node.attrs, int(node.attrs.get("n_used", 0))
    depth, counted = low.width(listed), low.counted(t)
    constants = {
        "USED": used,
        "LISTED": used > 0 and bool(more),
        "X_USED": 1 if lookup else low.width(x) // n,
        "HALF": low.graph.buffer(a).dtype is DType.F16,
        "WANTED": wanted,
        "LOOKUP": lookup,
    }
    entry = KernelEntry(Spec(adapters.lora_a, constants), ("args",), "m / 16, uses")
    block = ArgumentBlock(
        GpuLoraArgs,
        {
            "x": 0 if lookup else low.at(x), "a": low.at(a), "pairs": low.at(pairs), "adapters": low.at(listed),
            "wanted": low.at(more[0]) if wanted else 0, "t": low.at(t), "n": n, "m": m,
            "ids": low.at(x) if lookup else low.at(more[0]) if used and more else 0,
            "r": m // int(node.attrs["n_pairs"]), "pair": int(node.attrs["pair"]), "depth": depth,
            "n_adapters": int(low.graph.buffer(pairs).shape[1]), "n_experts": counts[1] if len(counts) > 1 else 1,
        },
    )  # fmt: skip
    uses = max(used, 1) * depth
    low.emit(
        node, entry, lambda s: (m // RANKS, getattr(s, counted) * uses), (block,), counted, (x, listed, *more), (t,)
    )


@GPU.lowers(Op.LORA_B)
def lora_b(low: GpuLowering, single: Single) -> None:
    """y = base + scale * (B t)."""
    node, y = single.node, single.node.outputs[0]
    base, t, b, pairs, listed, scales, *more = node.inputs
    *counts, _, r, _ = (int(d) for d in low.graph.buffer(b).shape)
    wanted, used, counted = "wanted" in node.attrs, int(node.attrs.get("n_used", 0)), low.counted(y)
    summed = used > 0 and len(more) > 1
    n = low.width(y) // (1 if summed else max(used, 1))
    constants = {
        "USED": used,
        "LISTED": used > 0 and bool(more),
        "HALF": low.graph.buffer(b).dtype is DType.F16,
        "WANTED": wanted,
        "SUMMED": summed,
        "GROUPS": -(-r // GROUP),
    }
    entry = KernelEntry(Spec(adapters.lora_b, constants), ("args",), "ceil(n / 256), rows of y")
    block = ArgumentBlock(
        GpuLoraArgs,
        {
            "base": low.at(base), "t": low.at(t), "b": low.at(b), "pairs": low.at(pairs), "adapters": low.at(listed),
            "scales": low.at(scales), "wanted": low.at(more[0]) if wanted else 0,
            "ids": low.at(more[0]) if used and more else 0,
            "weights": low.at(more[1]) if summed else 0, "y": low.at(y), "n": n, "r": r,
            "m": int(low.graph.buffer(t).shape[-1]), "pair": int(node.attrs["pair"]),
            "start": int(node.attrs["start"]), "depth": low.width(listed),
            "n_adapters": int(low.graph.buffer(pairs).shape[1]), "n_experts": counts[1] if len(counts) > 1 else 1,
        },
    )  # fmt: skip
    lines = 1 if summed or not used else used
    low.emit(
        node, entry, lambda s: (-(-n // 256), getattr(s, counted) * lines), (block,), counted,
        (base, t, listed, scales, *more), (y,),
    )  # fmt: skip
