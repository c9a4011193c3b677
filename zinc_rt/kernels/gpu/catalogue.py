"""The kernels by name, with their arguments in order. A kernel's own text says what it does with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from zinc_rt.formats import table
from zinc_rt.kernels.gpu import (
    ahead,
    argmax,
    attention,
    block_experts,
    block_tiles,
    down,
    elementwise,
    embed,
    epilogue,
    expert_lists,
    experts,
    float_tiles,
    grouped,
    heads,
    matvec,
    norm,
    product_conv,
    product_heads,
    quantize,
    recurrent,
    router,
    sampling,
    sampling_draw,
    sampling_top,
    scan,
    shared_rows,
    tile_layout,
)
from zinc_rt.lang.frontend import Spec
from zinc_rt.lang.kernel import Function
from zinc_rt.numerics import GROUP, TREE_LANES

QUANTIZED: Final = tuple(f.name for f in table.quantized())
FLOATS: Final = tuple(f.name for f in table.floats())
MOST_STEPS: Final = {"Q4_0": 4, "Q4_1": 4, "Q5_0": 3, "Q5_1": 3, "Q8_0": 4, "Q4_K": 3, "Q5_K": 3, "Q6_K": 2}
"""Groups that a lane may load together, by format: more would need more than the 96 registers with which a SIMD holds
all of its 16 waves. Two for formats that are missing.
"""


@dataclass(frozen=True)
class KernelEntry:
    """spec: what `gpu_kernel` compiles; arguments: names in the order of `GpuKernel.user_data` and of a dispatch;
    groups: how many workgroups do the whole work, in words of the arguments.
    """

    spec: Spec
    arguments: tuple[str, ...]
    groups: str


def entry(
    function: Function, arguments: str, groups: str, **constants: str | int | bool | tuple[int, ...]
) -> KernelEntry:
    return KernelEntry(Spec(function, constants), tuple(arguments.split()), groups)


def _decode() -> dict[str, KernelEntry]:
    out = {
        "quantize": entry(quantize.quantize, "x q d s n", "ceil(n / 1024)"),
        "arrange": entry(tile_layout.arrange, "q d s x n_groups n_rows", "slabs of 128 rows, ceil(n_rows / 128)"),
        "expert_lists": entry(expert_lists.expert_lists, "ids rows places tiles n_pairs k", "experts"),
        "rms_norm": entry(norm.rms_norm, "x w y n eps", "rows", WEIGHT=True),
        "residual_rms_norm": entry(norm.residual_rms_norm, "x residual w total y n eps", "rows"),
        "add": entry(elementwise.add, "a b y n", "ceil(n / 1024)"),
        "add_row": entry(elementwise.add_row, "a b y n", "ceil(n / 256), rows"),
        "swiglu": entry(elementwise.swiglu, "gate up y n alpha limit", "ceil(n / 1024)", ACT="silu"),
        "swiglu_quantized": entry(
            quantize.swiglu_quantized, "gate up q d s n alpha limit", "ceil(n / 1024)", ACT="silu"
        ),
        "scale": entry(elementwise.scale, "x y number n", "ceil(n / 1024)", WHAT="scale"),
        "softcap": entry(elementwise.scale, "x y number n", "ceil(n / 1024)", WHAT="softcap"),
        "clamp": entry(elementwise.clamp_rows, "x y low high n", "ceil(n / 1024)"),
        "position_scale": entry(elementwise.position_scale, "x positions factors y n", "ceil(n / 256), rows"),
        "move": entry(elementwise.move, "x y n", "ceil(n / 1024)"),
        "ahead": entry(ahead.ahead, "x unused", "bytes / 16384"),
        "norm_quantized": entry(norm.norm_quantized, "x w q d s n eps", "rows", WEIGHT=True),
        "residual_norm_quantized": entry(norm.residual_norm_quantized, "x residual w total q d s n eps", "rows"),
        "norm_both": entry(norm.norm_both, "x w y q d s n eps", "rows"),
        "add_shared": entry(elementwise.add_shared, "routed shared gate y n", "ceil(n / 256), rows"),
        "mul": entry(elementwise.mul, "a b y n", "ceil(n / 1024)"),
        "sigmoid_mul": entry(elementwise.sigmoid_mul, "x gate y n", "ceil(n / 1024)"),
        "mul_heads": entry(elementwise.mul_heads, "a b y dim n", "ceil(n / 256)", GATED=False),
        "sigmoid_mul_heads": entry(elementwise.mul_heads, "a b y dim n", "ceil(n / 256)", GATED=True),
        "argmax": entry(argmax.argmax, "x y n", "rows"),
        "argmax_parts": entry(argmax.argmax_parts, "x tops places n parts", "ceil(n / 2048), rows"),
        "argmax_merge": entry(argmax.argmax_merge, "tops places y parts", "rows"),
        "sample_scores": entry(sampling.sample_scores, "a", "ceil(n / 1024), rows"),
        "sample_adjust": entry(sampling.sample_adjust, "a", "ceil(max_touched / 64), rows"),
        "sample_top_scores": entry(
            sampling_top.sample_top_scores, "scores out_keys out_ids n k", "ceil(n / 4096), rows"
        ),
        "sample_top": entry(sampling_top.sample_top, "in_keys in_ids out_keys out_ids n k", "ceil(n / 4096), rows"),
        "sample_totals": entry(sampling.sample_totals, "a", "n_blocks, rows"),
        "sample_draw": entry(sampling_draw.sample_draw, "a", "rows"),
    }
    for kind in QUANTIZED:
        out[f"matvec_{kind.lower()}"] = entry(matvec.matvec, "w q d s y n_groups n_rows", "ceil(n_rows / 4)", FMT=kind)
        out[f"embed_{kind.lower()}"] = entry(embed.embed, "table ids y n", "ceil(n / 2048), rows", FMT=kind)
    for kind in FLOATS:
        out[f"matvec_{kind.lower()}"] = entry(matvec.matvec_float, "w x y n n_rows", "ceil(n_rows / 4)", FMT=kind)
        out[f"embed_{kind.lower()}"] = entry(embed.embed_float, "table ids y n", "ceil(n / 256), rows", FMT=kind)
    return out


DECODE: Final[Mapping[str, KernelEntry]] = MappingProxyType(_decode())
"""The kernels of a step that need no shape to be compiled."""


def matvec_rows(kind: str, rows: int, *, bias: bool = False) -> KernelEntry:
    """A matrix times blocks of several rows of activations at once; y: f32[blocks * rows, n_rows]."""
    between, groups = "bias y" if bias else "y", "ceil(n_rows / 4), blocks"
    if kind in FLOATS:
        if rows == 1:
            function = matvec.matvec_float_bias if bias else matvec.matvec_float
        elif rows < shared_rows.SHARED_FROM:
            function = matvec.matvec_float_block_bias if bias else matvec.matvec_float_block
        else:
            groups = "ceil(n_rows / 32), blocks"
            function = shared_rows.matvec_float_shared_bias if bias else shared_rows.matvec_float_shared
        return entry(function, f"w x {between} n n_rows", groups, FMT=kind, M=rows)
    if rows <= 2:  # short waves end sooner, and two rows of bytes do not keep the vector cache busy
        function = matvec.matvec_bias if bias else matvec.matvec
    else:
        function = matvec.matvec_block_bias if bias else matvec.matvec_block
    return entry(function, f"w q d s {between} n_groups n_rows", groups, FMT=kind, M=rows)


def _steps(kind: str, rows: int, n_in: int) -> dict[str, int]:
    """Groups of a lane that are loaded together, for a product with rows of so many weights: as few turns as possible,
    and of the same number of turns the one that takes fewest registers. Float weights have no such constant.
    """
    if kind in FLOATS:
        return {}
    whole = n_in // (GROUP * TREE_LANES)
    most = 1 if rows > 1 else MOST_STEPS.get(kind, 2)
    return {"STEPS": min(range(1, most + 1), key=lambda steps: (whole // steps + whole % steps, steps))}


def rows_of_workgroup(kind: str, rows: int) -> int:
    """Rows of weights of a workgroup of `matvec_rows`."""
    shares = kind in FLOATS and rows >= shared_rows.SHARED_FROM
    return shared_rows.WAVES * shared_rows.EACH if shares else matvec.WAVES


def gate_kernels(activation: str) -> tuple[KernelEntry, KernelEntry, KernelEntry]:
    """activation(gate) * up as floats, as int8, and as floats of a part of up; see `zinc_rt.kernels.maths.gated`."""
    rest, part = "n alpha limit", "n start width alpha limit"
    return (
        entry(elementwise.swiglu, f"gate up y {rest}", "ceil(n / 1024)", ACT=activation),
        entry(quantize.swiglu_quantized, f"gate up q d s {rest}", "ceil(n / 1024)", ACT=activation),
        entry(elementwise.swiglu_part, f"gate up y {part}", "ceil(n / 256), rows", ACT=activation),
    )


def plain_norm(*, quantized: bool) -> KernelEntry:
    """The RMS norm of rows without a weight; the argument w is not read."""
    if quantized:
        return entry(norm.norm_quantized, "x w q d s n eps", "rows", WEIGHT=False)
    return entry(norm.rms_norm, "x w y n eps", "rows", WEIGHT=False)


def grouped_rows(kind: str, rows: int) -> KernelEntry:
    """Parts of rows times a matrix each, for blocks of several rows of activations at once."""
    groups = "ceil(n_rows / 4), blocks, parts"
    if kind in FLOATS:
        return entry(grouped.grouped_matvec_float, "w x y n n_rows parts", groups, FMT=kind, M=rows)
    return entry(grouped.grouped_matvec, "w q d s y n_groups n_rows parts", groups, FMT=kind, M=rows)


def sum_norm(*, weight: bool, quantized: bool, both: bool = False) -> KernelEntry:
    """The norm of a sum with factors; both: as floats beside the int8. See `norm.GpuSumNormArgs`."""
    return entry(norm.sum_norm, "a", "rows", WEIGHT=weight, QUANTIZED=quantized, BOTH=both)


class HeadForm(NamedTuple):
    """What happens to a projection's heads; the fields are those of FORM in `heads`, in its order."""

    dim: int
    pairs: int
    interleaved: bool
    norm: bool
    weight: bool
    cache: bool
    row: int
    start: int
    blocks: bool
    packed: bool
    begin: int
    every: int


def head_form(
    dim: int, pairs: int, *, interleaved: bool, norm: bool, cache: bool, weight: bool | None = None, row: int = 0,
    start: int = 0, quantized: bool = False, packed: bool = False, begin: int = 0, every: int = 1,
) -> HeadForm:  # fmt: skip
    """Heads of `dim` elements, 2 * `pairs` of them rotated from `begin` on; weight: whether the norm has one; not said:
    it does.

    row, start: they are elements start .. of heads of `row` elements in the cache, 0 for `dim`. quantized: in a cache
    of Q8_0 blocks; packed: as int8 in a buffer. Both want a multiple of 32. every: in a cache,
    only rows that end a block of so many positions. See `heads.GpuHeadsArgs`.
    """
    has = norm if weight is None else weight
    return HeadForm(dim, pairs, interleaved, norm, has, cache, row or dim, start, quantized, packed, begin, every)


def heads_kernel(form: HeadForm) -> KernelEntry:
    """Heads by themselves."""
    return entry(heads.heads, "a", "ceil(n_rows * n_heads / 4)", FORM=form)


def rows_before_heads(rows: int, dim: int) -> int:
    """Rows of weights of a workgroup of `matvec_heads`: heads are whole workgroups."""
    most = rows_before_norm(rows)
    return epilogue.WAVES if dim % most else most


def matvec_heads(
    kind: str, rows: int, n_in: int, form: HeadForm, second: HeadForm | tuple[()] = (), *, bias: bool
) -> KernelEntry:
    """As `matvec_rows`, and then the heads that the rows consist of; n_in: elements of a row of weights; second: what
    else is made of the heads. See `heads.GpuHeadsArgs`.
    """
    each = rows_before_heads(rows, form.dim) // epilogue.WAVES
    between, groups = "bias " if bias else "", f"n_rows / {epilogue.WAVES * each}, blocks"
    if kind in FLOATS:
        function = product_heads.matvec_float_bias_heads if bias else product_heads.matvec_float_heads
        arguments = f"w x {between}n n_rows a b"
    else:
        function = product_heads.matvec_bias_heads if bias else product_heads.matvec_heads
        arguments = f"w q d s {between}n_groups n_rows a b"
    steps = _steps(kind, rows, n_in)
    return entry(function, arguments, groups, FMT=kind, M=rows, EACH=each, FORM=form, SECOND=second, **steps)


def attention_kernel(
    dim: int, group: int, *, value_dim: int | None = None, rope: int = 0, window: bool = False, cap: bool = False,
    sinks: bool = False, reach: bool = False, quantized: bool = False, packed: bool = False, gated: bool = False,
    whole: bool = False, chunk: bool = False, chosen: bool = False, slopes: bool = False,
) -> KernelEntry:  # fmt: skip
    """Attention for `group` query heads to a key-value head; see `attention.GpuAttentionArgs`.

    dim: elements of a key. value_dim: of a value, as many if not said. rope: see the kernel. quantized: over caches of
    Q8_0 blocks, and queries as int8. packed: the result as int8; value_dim is a multiple of 32 then. gated: times the
    sigmoid of a gate. whole: as int8, too, where rows are multiples of 32. chosen: rows see chosen positions. slopes:
    scores fall with distance.
    """
    return entry(
        attention.attention, "a", "splits, n_kv, rows", G=group, DIM=dim,
        VALUE=dim - rope if value_dim is None else value_dim, ROPE=rope, WINDOW=window, CAP=cap, REACH=reach,
        QUANT=quantized, SINKS=sinks, PACKED=packed, GATED=gated,
        WHOLE=whole, CHUNK=chunk, CHOSEN=chosen, SLOPES=slopes,
    )  # fmt: skip


def choose_experts(
    n_experts: int, k: int, *, gating: str, normalise: bool, bias: bool, scaled: bool, groups: int = 1, used: int = 1,
    by_token: bool = False,
) -> KernelEntry:  # fmt: skip
    """k of n_experts for each row; see `router.GpuRouterArgs`."""
    return entry(
        router.choose_experts, "a", "rows", E=n_experts, K=k, GATING=gating, NORMALISE=normalise, BIAS=bias,
        SCALED=scaled, GROUPS=groups, USED=used, **({"BY_TOKEN": True} if by_token else {}),
    )  # fmt: skip


def route(
    kind: str, rows: int, n_experts: int, k: int, *, gating: str, normalise: bool, bias: bool, scaled: bool,
    router_bias: bool, factor: bool, groups: int = 1, used: int = 1, by_token: bool = False,
) -> KernelEntry:  # fmt: skip
    """The logits of blocks of rows, and then `choose_experts`; see `epilogue.GpuRouteArgs`."""
    return entry(
        epilogue.route, "p a", "n_experts, blocks", FMT=kind, M=rows, ROUTER_BIAS=router_bias, FACTOR=factor,
        E=n_experts, K=k, GATING=gating, NORMALISE=normalise, BIAS=bias, SCALED=scaled, GROUPS=groups, USED=used,
        **({"BY_TOKEN": True} if by_token else {}),
    )  # fmt: skip


class TailForm(NamedTuple):
    """The parts of `epilogue.GpuNormTail` that a kernel does; the fields are those of its TAIL, in that order."""

    norms: int = 0
    sum: bool = True
    factors: bool = False
    norm: bool = True
    packed: bool = False
    plain: bool = False
    n: int = 0


def rows_before_norm(rows: int) -> int:
    """Rows of weights of a workgroup of `matvec_norm` for blocks of so many rows of activations."""
    return epilogue.WAVES * (matvec.WAVES if rows > 1 else 1)


def matvec_norm(kind: str, rows: int, n_in: int, form: TailForm, *, bias: bool) -> KernelEntry:
    """As `matvec_rows`, and then a tail; see `epilogue.GpuNormTail`. n_in: elements of a row of weights."""
    between, groups = "bias y" if bias else "y", f"ceil(n_rows / {rows_before_norm(rows)}), blocks"
    if kind in FLOATS:
        function = epilogue.matvec_float_bias_norm if bias else epilogue.matvec_float_norm
        arguments = f"w x {between} n n_rows t"
    else:
        function = epilogue.matvec_bias_norm if bias else epilogue.matvec_norm
        arguments = f"w q d s {between} n_groups n_rows t"
    each = rows_before_norm(rows) // epilogue.WAVES
    return entry(function, arguments, groups, FMT=kind, M=rows, EACH=each, TAIL=form, **_steps(kind, rows, n_in))


def experts_down_norm(
    kind: str, k: int, n_in: int, form: TailForm, *, bias: bool, shared: str = "", n_shared: int = 0,
    gated: bool = False,
) -> KernelEntry:  # fmt: skip
    """As `experts_down`, and then a tail; see `epilogue.GpuNormTail`."""
    return entry(
        epilogue.experts_down_norm, "a t", "ceil(n_out / 8), rows", FMT=kind, K=k, N_IN=n_in, BIAS=bias,
        TAIL=form, SHARED=shared, N_SHARED=n_shared, GATED=gated,
    )  # fmt: skip


def expert_rows(kind: str, *, bias: bool) -> KernelEntry:
    """Products with the chosen experts; see `experts.GpuExpertRowsArgs`."""
    return entry(experts.expert_rows, "a", "rows, k, ceil(n_out / 4)", FMT=kind, BIAS=bias)


def gated_experts(gate: str, up: str, *, packed: bool, bias: bool, activation: str) -> KernelEntry:
    """act(gate) * up of the chosen experts, as int8 if packed; see `experts.GpuGatedArgs`."""
    return entry(
        experts.gated_experts,
        "a",
        "rows, k, ceil(n_ff / 32)",
        GATE=gate,
        UP=up,
        PACKED=packed,
        BIAS=bias,
        ACT=activation,
    )


def gated_rows(gate: str, up: str, rows: int, *, packed: bool, bias: bool, activation: str) -> KernelEntry:
    """act(gate) * up of two matrices for blocks of several rows; up: "" where rows are given in its place. See
    `experts.GpuGatedArgs`.
    """
    return entry(
        experts.gated_rows, "a", "blocks, 1, ceil(n_ff / 32)", GATE=gate, UP=up, PACKED=packed, BIAS=bias, M=rows,
        ACT=activation,
    )  # fmt: skip


def experts_down(
    kind: str, k: int, n_in: int, *, bias: bool, shared: str = "", n_shared: int = 0, gated: bool = False
) -> KernelEntry:
    """The weighted sum of the chosen experts' products, and the shared expert; see `down.GpuDownArgs`."""
    return entry(
        down.experts_down, "a", "ceil(n_out / 4), rows", FMT=kind, K=k, N_IN=n_in, BIAS=bias, SHARED=shared,
        N_SHARED=n_shared, GATED=gated,
    )  # fmt: skip


def conv1d(taps: int, *, gated: bool, bias: bool, apart: bool = False) -> KernelEntry:
    """A causal convolution; see `recurrent.GpuConvArgs`."""
    form = {"TAPS": taps, "GATED": gated, "BIAS": bias, "APART": apart}
    return entry(recurrent.conv1d, "a", "ceil(channels / 256), sequences", **form)


def matvec_conv(kind: str, rows: int, taps: int, *, gated: bool, bias: bool) -> KernelEntry:
    """A product for up to `rows` rows, and a causal convolution of what it makes; bias: of the convolution."""
    each = rows_before_norm(rows)
    groups = f"ceil(channels / {each})"
    constants: dict[str, Any] = {
        "FMT": kind,
        "M": rows,
        "EACH": each // epilogue.WAVES,
        "TAPS": taps,
        "GATED": gated,
        "BIAS": bias,
    }
    if kind in FLOATS:
        return entry(product_conv.matvec_float_conv, "w x n a", groups, **constants)
    return entry(product_conv.matvec_conv, "w q d s n_groups a", groups, **constants)


def delta_net(dim: int, *, norm: str, packed: bool, decay: str = "head") -> KernelEntry:
    """The gated delta rule for heads of `dim` elements, with the norm behind it; see `recurrent.delta_rows`."""
    wide = dim > recurrent.FEW_VALUES and dim <= recurrent.IN_REGISTERS
    function = (recurrent.delta_net_128 if dim > 64 else recurrent.delta_net_64) if wide else recurrent.delta_net_32
    return entry(function, "a", "heads, sequences, ceil(dim / lanes)", DIM=dim, NORM=norm, PACKED=packed, DECAY=decay)


def gated_norm(dim: int, activation: str = "silu") -> KernelEntry:
    """Norm and gate of heads of `dim` elements."""
    return entry(recurrent.gated_norm, "o z weight y n_heads eps", "ceil(n_heads / 4)", DIM=dim, ACT=activation)


def selective_scan(dim: int, size: int, *, per_channel: bool) -> KernelEntry:
    """The selective scan of heads of `dim` elements with states of `size` elements; see `scan.GpuScanArgs`."""
    return entry(
        scan.scan, "a", "ceil(units / units of a workgroup), sequences", DIM=dim, STATE=size, CHANNELS=per_channel
    )


def gate_first_norm(dim: int) -> KernelEntry:
    """Gate and norm of heads of `dim` elements."""
    return entry(scan.gate_first_norm, "o z weight y n_heads eps", "n_heads, rows", DIM=dim)


def float_tile(kind: str, *, bias: bool) -> KernelEntry:
    """A matrix of floats times many rows of activations; y: f32[n_x, n_rows]."""
    function, between = (float_tiles.float_tile_bias, "bias y") if bias else (float_tiles.float_tile, "y")
    return entry(function, f"w x {between} n n_rows n_x", "ceil(n_x / 64), ceil(n_rows / 128)", FMT=kind)


def float_expert_tiles(kind: str, *, bias: bool, gather: bool) -> KernelEntry:
    """Experts' matrices of floats times tiles of slots; gather: the activations are those of the slots' rows.
    y: f32[slots, n_rows].
    """
    function, between = (float_tiles.float_experts_bias, "bias y") if bias else (float_tiles.float_experts, "y")
    return entry(function, f"w x rows tiles {between} n n_rows", "tiles, ceil(n_rows / 128)", FMT=kind, GATHER=gather)


def block_tile(kind: str, *, bias: bool) -> KernelEntry:
    """Blocks of weights times many rows of activations as `tile_layout.arrange` lays them out; y: f32[n_x, n_rows]. For
    targets with `matrix_instructions`.
    """
    function, between = (block_tiles.block_tile_bias, "bias y") if bias else (block_tiles.block_tile, "y")
    return entry(function, f"w x {between} n_groups n_rows n_x", "ceil(n_x / 128), ceil(n_rows / 64)", FMT=kind)


def block_expert_tiles(kind: str, *, bias: bool) -> KernelEntry:
    """Experts' blocks times tiles of slots as `arrange_experts` lays them out; y: f32[slots, n_rows]. For targets with
    `matrix_instructions`.
    """
    of = block_experts
    function, between = (of.block_expert_tiles_bias, "bias y") if bias else (of.block_expert_tiles, "y")
    return entry(function, f"w x tiles {between} n_groups n_rows", "tiles, ceil(n_rows / 128)", FMT=kind)


def arrange_experts(*, gather: bool) -> KernelEntry:
    """Activations of tiles of slots for `block_expert_tiles`; gather: from the slots' rows. See `expert_lists`."""
    return entry(
        expert_lists.arrange_experts, "q d s rows tiles x n_groups", "tiles, slabs of a tile / 4", GATHER=gather
    )


def sum_experts(k: int) -> KernelEntry:
    """The weighted sum of the products of a row's k slots."""
    return entry(expert_lists.sum_experts, "x places weights y n", "ceil(n / 256), rows", K=k)


def kernel_label(entry: KernelEntry) -> str:
    """What a kernel is called in messages and profiles: its name and constants, as `matvec Q8_0 M=8`."""
    constants: dict[str, Any] = {}
    for name, value in entry.spec.constants.items():
        if name == "SECOND":  # of two forms the first tells enough
            constants[name] = bool(value)
            continue
        parts = value._asdict() if isinstance(value, TailForm | HeadForm) else {name: value}
        constants |= {part.upper(): v for part, v in parts.items()}
    shown = (
        name.lower() if value is True else str(value) if isinstance(value, str) else f"{name}={value}"
        for name, value in constants.items()
        if value is not False
    )
    return " ".join((entry.spec.function.name, *shown))
