"""What kernels are handed: the step, and a struct of arguments for each operation."""

from __future__ import annotations

from zinc_rt.lang.types import f16, f32, i8, i16, i32, i64, ptr, struct, u8

BIASES = (128, 8, 16, 1, 64)
"""What may have been added to a group's weights; a `Pack` can have a sum that takes each away."""
HALF_BIAS = 32
"""The same where the halves of a group have scales of their own."""
PLAIN_SUM = 0
"""Of a pack's sums, the one that minima of whole groups are multiplied with; those of `BIASES` follow it."""
HALF_SUMS = (1 + len(BIASES), 2 + len(BIASES))
"""Those of halves of groups."""
CROSSED = HALF_SUMS[1] + 1
"""The sum of the products of columns 2n and 2n + 1, negative (see `panels`)."""
EIGHTHS = CROSSED + 1
"""The first of `EIGHTH_WORDS` sums that lie together for each group, for weights with eighths; others have planes.

Two words have the sums of 8 activations, negative: the first of a half in the low 16 bits, the second above it. A third
one is the sum of these two; the fourth is not used. The last four are a table of 8 numbers of 16 bits, their low bytes
first: entry 4h + 2j + i is what is added to 8 times the sum of half h, whose weights are one too large, and have an
eighth more (1) or less (0) by i in the first 8 columns, by j in the others.
"""
EIGHTH_WORDS = 8
N_SUMS = EIGHTHS + EIGHTH_WORDS


@struct
class StepRecord:
    """The step's sizes and inputs; the same memory for every operation of a program."""

    n_rows: i32
    n_logits: i32
    max_pages: i32  # row length of page_table
    n_splits: i32  # splits of the longest row where attention units are single splits; 0: units are whole heads
    token_ids: ptr[i32]
    positions: ptr[i32]
    slots: ptr[i32]
    page_table: ptr[i32]  # [n_slots, max_pages]
    logit_rows: ptr[i32]
    last_positions: ptr[i32]  # of each row's sequence, for encoders


@struct
class Pack:
    """Activations as matrix products read them. Rows lie in blocks of `min(rows, 16)`, groups of 32 in visiting order.

    q: i8[block, group, row of block, 32]; d: f32[block, group, row]; s: i32[N_SUMS][block, group, row], the sum of a
    group and what its offsets take away: s (as the bits of a float32), s times each of `BIASES`, negative, so for
    `HALF_BIAS` the sum of the first half and that of the second, and `EIGHTHS`. Of these, those are there that
    `sums` has a bit for.
    f: f32[block, group, 32, row], for float weights. q or f may be null.
    words: i16[block, group, row, 2, 16], the even columns of q, then the odd ones; null: not wanted. Blocks of
    `LEAST_ROWS` and more have them and `CROSSED`. See `panels`.
    tables: u8[group, 256] of a single row; null: not wanted. See `lookups`.
    """

    q: ptr[i8]
    words: ptr[i16]
    d: ptr[f32]
    s: ptr[i32]
    f: ptr[f32]
    tables: ptr[u8]
    visit: ptr[i32]  # [n_groups]: a group's place in visiting order
    s_stride: i64  # elements from one sum to the next
    n: i32  # elements of a row
    n_groups: i32
    sums: i32  # bit i: sum i is stored


@struct
class EmbedArgs:
    """ids: rows of the table; null: the step's tokens."""

    table: ptr[u8]
    row_bytes: i64
    y: ptr[f32]
    n: i32
    ids: ptr[i32]


@struct
class NormArgs:
    """total = (x + residual * residual_scale) * total_scale (where there is a residual); y = norm(total); pack = y.

    Null: not wanted; a null weight: none.
    """

    x: ptr[f32]
    residual: ptr[f32]
    weight: ptr[f32]
    total: ptr[f32]
    y: ptr[f32]
    pack: ptr[Pack]
    n: i32
    by_logit: i32  # 1: unit u is the row logit_rows[u], packed as row u
    eps: f32
    residual_scale: f32
    total_scale: f32


@struct
class PackArgs:
    """pack = x, or pack = activation(x) * up; y likewise where wanted. alpha, limit: of the activation "clamped"."""

    x: ptr[f32]
    up: ptr[f32]
    y: ptr[f32]
    pack: ptr[Pack]
    n: i32
    by_logit: i32
    up_n: i32  # elements from a row of up to the next
    alpha: f32
    limit: f32


@struct
class MatmulArgs:
    """y[row] = W pack[row] + bias. w: tiles of 16 rows (see layout.py)."""

    w: ptr[u8]
    tile_bytes: i64
    pack: ptr[Pack]
    y: ptr[f32]
    bias: ptr[f32]
    n_out: i32
    by_logit: i32


@struct
class HeadsArgs:
    """One projection's heads: optional norm (without a weight where that is null), optional rotation, then to `y` or
    into a cache (null: not there). In a cache of keys they are elements start .. of heads of `width` elements.
    """

    x: ptr[f32]
    weight: ptr[f32]
    table: ptr[f32]  # [n_ctx, 2, pairs]: cosines, then sines
    y: ptr[f32]
    k_cache: ptr[f16]  # [page, head, head_dim, 16]
    v_cache: ptr[f16]  # [page, head, 16, head_dim]
    n_heads: i32
    eps: f32
    normed: i32
    width: i32
    start: i32


@struct
class AttentionArgs:
    """q_rope: the last elements of queries, where they come apart. sinks, window, softcap, slopes: where there are."""

    q: ptr[f32]  # [rows, heads, head_dim], without the elements of q_rope
    q_rope: ptr[f32]  # [rows, heads, elements]
    k_cache: ptr[f16]
    v_cache: ptr[f16]
    sinks: ptr[f32]  # [heads]
    y: ptr[f32]  # [rows, heads, value_dim]
    partial: ptr[f32]  # [rows, splits, heads, value_dim + 16]: weighted values, then max and sum
    n_kv: i32
    max_splits: i32
    window: i32  # positions that a row sees
    scale: f32
    softcap: f32
    chosen: ptr[i32]  # [rows, max_pages]: bits of the positions that rows see, where they see chosen ones
    slopes: ptr[f32]  # [heads]


@struct
class AddArgs:
    a: ptr[f32]
    b: ptr[f32]
    y: ptr[f32]
    n: i32
    repeat: i32  # 1: b is one row, added to every row


@struct
class ScaleArgs:
    """y = x times a number, times factors[position] where there is a table, cap * tanh(x / cap), or x held in
    number .. high.
    """

    x: ptr[f32]
    y: ptr[f32]
    factors: ptr[f32]
    n: i32
    number: f32
    high: f32


@struct
class MulArgs:
    """y = a * b, or a * sigmoid(b). dim: elements for each of b, where b has one for a head."""

    a: ptr[f32]
    b: ptr[f32]
    y: ptr[f32]
    n: i32
    dim: i32


@struct
class Conv1dArgs:
    x: ptr[f32]
    x1: ptr[f32]  # of the second and the last third of the channels, where these come apart
    x2: ptr[f32]
    taps: ptr[f32]  # [taps, n]: oldest first
    state: ptr[f32]  # [slot, taps - 1, n]: oldest first
    bias: ptr[f32]
    y: ptr[f32]
    n: i32  # channels


@struct
class DeltaNetArgs:
    u: ptr[f32]  # [rows, n_k + n_k + n_v, head_dim]: queries, keys, values
    alpha: ptr[f32]  # [rows, n_v], or [rows, n_v, head_dim]
    beta: ptr[f32]  # [rows, n_v]
    a: ptr[f32]
    dt_bias: ptr[f32]  # [n_v], or [n_v, head_dim]
    state: ptr[f32]  # [slot, n_v, head_dim of keys, head_dim of values]
    y: ptr[f32]  # [rows, n_v, head_dim]
    n_k: i32
    n_v: i32
    share: i32  # value heads in a row that share a key head; 0: value head h has key head h % n_k
    lower_bound: f32  # of the logarithm of a channel's decay
    eps: f32
    scale: f32  # of queries


@struct
class ScanArgs:
    x: ptr[f32]  # [rows, n_x]; the heads of a row begin here
    b: ptr[f32]  # [rows, n_b]; the groups of a row begin here
    c: ptr[f32]  # as b
    dt: ptr[f32]  # [rows, n_heads], or [rows, head_dim] of the one head
    a: ptr[f32]  # [n_heads], or [state_size, head_dim]
    dt_bias: ptr[f32]  # [n_heads], or none
    d: ptr[f32]
    state: ptr[f32]  # [slot, n_heads, state_size, head_dim]
    y: ptr[f32]  # [rows, n_heads, head_dim]
    n_x: i32
    n_b: i32
    n_heads: i32
    share: i32  # heads in a row that share b and c


@struct
class GatedNormArgs:
    o: ptr[f32]  # [rows, heads, head_dim], like z and y
    z: ptr[f32]
    weight: ptr[f32]  # [head_dim], or [heads, head_dim] where the gate comes first
    y: ptr[f32]
    eps: f32
    n_heads: i32


@struct
class ArgmaxArgs:
    x: ptr[f32]
    y: ptr[i32]
    n: i32


@struct
class CopyArgs:
    """Raw bytes of a tensor, one matrix after another, into tiles.

    Rows lie `stretch` together, and such stretches `period_bytes` apart.
    """

    source: ptr[u8]
    row_bytes: i64
    period_bytes: i64
    tiles: ptr[u8]
    tile_bytes: i64
    stretch: i32
    n_tiles: i32  # of a matrix
    n_rows: i32  # of a matrix
    n_groups: i32
    n: i32  # elements of a row


@struct
class SumArgs:
    x: ptr[u8]
    y: ptr[i64]
    chunk: i64  # bytes of a unit, a multiple of 512


@struct
class Route:
    """The rows of a step by the experts that they chose; `kernels.cpu.routing.route` fills it.

    A pair is a row with one of its experts, row * k + j. A slot is a pair's place in the order of experts; the slots of
    an expert that many rows chose are whole blocks of 16.
    """

    used: ptr[i32]  # [2]: experts that rows chose, and jobs
    expert: ptr[i32]  # [used]: their ids, rising; so for the next two
    start: ptr[i32]  # first slot
    count: ptr[i32]  # rows
    index: ptr[i32]  # [n_experts]: an expert's place among the used ones
    filled: ptr[i32]  # [used]: rows that have a slot already
    job: ptr[i32]  # [jobs, 2]: place among the used experts, first row of a panel of its rows
    place: ptr[i32]  # [pairs, 3]: first slot of the block, slot in the block, slots of the block
    pair: ptr[i32]  # [slots]


@struct
class TopkArgs:
    """The experts of each row. bias, expert_scale: null for none. table: f32[n_vocab, k], the experts of each token, or
    null.
    """

    logits: ptr[f32]
    bias: ptr[f32]
    expert_scale: ptr[f32]
    ids: ptr[i32]
    weights: ptr[f32]
    n_experts: i32
    k: i32
    n_groups: i32
    n_groups_used: i32
    normalise: i32
    scale: f32
    table: ptr[f32]


@struct
class RouteArgs:
    ids: ptr[i32]
    route: ptr[Route]
    n_experts: i32
    k: i32


@struct
class GatherArgs:
    """Packed rows of a step to the slots of their pairs."""

    route: ptr[Route]
    pack: ptr[Pack]
    slots: ptr[Pack]
    k: i32


@struct
class ExpertPackArgs:
    """Rows f32[pairs, n] to the slots of their pairs."""

    route: ptr[Route]
    x: ptr[f32]
    slots: ptr[Pack]
    n: i32


@struct
class ExpertGateArgs:
    """gate and up of the chosen experts, and activation(gate) * up; what is null is not wanted or not there.

    gate, up: tiles of matrices [n_experts, n_out, n_in]; biases [n_experts, n_out]. gated, upped, y: [pairs, n_out].
    """

    route: ptr[Route]
    pack: ptr[Pack]  # of the rows, which a step of one row reads
    slots: ptr[Pack]  # of the pairs, which larger ones read
    gate: ptr[u8]
    up: ptr[u8]
    gate_bias: ptr[f32]
    up_bias: ptr[f32]
    gated: ptr[f32]
    upped: ptr[f32]
    y: ptr[f32]
    act: ptr[Pack]  # of y, by pairs
    gate_bytes: i64  # of a tile
    up_bytes: i64
    n_out: i32
    alpha: f32  # of the activation "clamped"
    limit: f32


@struct
class ExpertDownArgs:
    """y[row] = the sum over its experts of weight * (W act + bias)."""

    route: ptr[Route]
    act: ptr[Pack]
    weights: ptr[f32]  # [pairs]
    w: ptr[u8]
    bias: ptr[f32]
    y: ptr[f32]
    tile_bytes: i64
    n_out: i32
    k: i32


@struct
class GroupedPackArgs:
    """Rows of `parts` stretches of n elements, packed stretch by stretch."""

    x: ptr[f32]
    pack: ptr[Pack]
    n: i32
    parts: i32


@struct
class GroupedArgs:
    """y[row, part] = W[part] pack[part, row]."""

    pack: ptr[Pack]
    w: ptr[u8]  # tiles, those of part 0 first
    y: ptr[f32]
    tile_bytes: i64
    n_out: i32
    parts: i32


@struct
class SharedArgs:
    """y = routed + shared, or routed + sigmoid(gate) * shared with a gate for each row."""

    routed: ptr[f32]
    shared: ptr[f32]
    gate: ptr[f32]
    y: ptr[f32]
    n: i32
