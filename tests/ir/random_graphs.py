"""Random valid graphs of any of the executable operations, with some that have no signature between them."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.ir.dense import CONSTANT, F16, F32, I32, INPUT, STATE, TEMP, WEIGHT
from zinc_rt.ir.builder import GraphBuilder
from zinc_rt.ir.graph import DType, Graph
from zinc_rt.ir.op import Op

WEIGHT_TYPES = [dtype for dtype in DType if dtype is not I32]
OPAQUE = [Op.LOAD_REQUEST_STATE, Op.SAMPLE, Op.VERIFY_K, Op.MATMUL_WMMA_F16]
NAMES = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=12)
SCALARS = (
    st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
OPERATIONS = (
    "matmul",
    "bias",
    "swiglu",
    "add",
    "norm",
    "head_norm",
    "add_norm",
    "rope",
    "attention",
    "opaque",
    "barrier",
)


class _Random:
    """One graph being drawn. Live activations are f32[n_rows, width], possibly split."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.b = GraphBuilder(draw(NAMES), draw(st.dictionaries(NAMES, SCALARS, max_size=3)))
        self.live: list[tuple[int, int]] = []
        self.unread: set[int] = set()
        self.shared: dict[str, int] = {}
        self.serial = 0

    def name(self) -> str:
        self.serial += 1
        return f"{self.draw(NAMES)}.{self.serial}"

    def step_input(self, role: str) -> int:
        if role not in self.shared:
            shape = ["n_slots", "max_pages"] if role == "page_table" else ["n_rows"]
            self.shared[role] = self.b.buffer(role, INPUT, I32, shape)
        return self.shared[role]

    def weight(self, *shape: int, plain: bool = False) -> int:
        fitting = [d for d in WEIGHT_TYPES if shape[-1] % d.block_size == 0]
        dtype = F32 if plain else self.draw(st.sampled_from(fitting))
        return self.b.buffer(self.name(), self.draw(st.sampled_from([WEIGHT, CONSTANT])), dtype, shape)

    def activation(self, width: int, kind: object = TEMP) -> int:
        shape: list[int | str] = ["n_rows", width]
        if width % 2 == 0 and self.draw(st.booleans()):
            shape = ["n_rows", 2, width // 2]
        return self.b.buffer(self.name(), str(kind), F32, shape)

    def read(self, width: int | None = None) -> tuple[int, int]:
        """A live activation (of this width), or a fresh input where there is none."""
        choices = [item for item in self.live if width in (None, item[1])]
        if choices:
            chosen = self.draw(st.sampled_from(choices))
        else:
            wanted = width or self.draw(st.sampled_from([1, 24, 64, 256]))
            chosen = (self.b.buffer(self.name(), INPUT, F32, ["n_rows", wanted]), wanted)
            self.live.append(chosen)
        self.unread.discard(chosen[0])
        return chosen

    def made(self, width: int, *, split: bool = True) -> int:
        y = self.activation(width) if split else self.b.buffer(self.name(), TEMP, F32, ["n_rows", width])
        self.live.append((y, width))
        self.unread.add(y)
        return y

    def step(self, operation: str) -> None:
        draw, b = self.draw, self.b
        eps = draw(st.floats(0, 1))
        if operation == "barrier":
            b.node(Op.BARRIER, [], [], self.name())
        elif operation == "opaque":
            x, width = self.read()
            attrs = draw(st.dictionaries(st.sampled_from(["a", "b_2", "µ"]), SCALARS, max_size=2))
            b.node(draw(st.sampled_from(OPAQUE)), [x], [self.made(width)], self.name(), **attrs)
        elif operation == "matmul":
            (x, width), n_out = self.read(), draw(st.sampled_from([1, 24, 64]))
            b.node(Op.MATMUL, [x, self.weight(n_out, width)], [self.made(n_out)], self.name())
        elif operation == "bias":
            x, width = self.read()
            b.node(Op.BIAS_ADD, [x, self.weight(width, plain=True)], [self.made(width)], self.name())
        elif operation in ("swiglu", "add"):
            x, width = self.read()
            other, _ = self.read(width)
            op = Op.SWIGLU if operation == "swiglu" else Op.RESIDUAL_ADD
            b.node(op, [x, other], [self.made(width)], self.name())
        elif operation == "norm":
            x, width = self.read()
            inputs = [x, self.weight(width, plain=True)]
            b.node(Op.RMS_NORM, inputs, [self.made(width)], self.name(), eps=eps)
        elif operation == "add_norm":
            x, width = self.read()
            inputs = [x, self.read(width)[0], self.weight(width, plain=True)]
            b.node(Op.RESIDUAL_RMS_NORM, inputs, [self.made(width), self.made(width)], self.name(), eps=eps)
        else:
            self.heads(operation, eps)

    def heads(self, operation: str, eps: float) -> None:
        draw, b = self.draw, self.b
        head_dim, kv_heads, groups = (draw(st.sampled_from(choice)) for choice in ([4, 6], [2, 3], [1, 2]))
        count = kv_heads * groups
        x, width = self.read()
        q = self.made(count * head_dim, split=False)
        b.node(Op.MATMUL, [x, self.weight(count * head_dim, width)], [q], self.name())
        self.unread.discard(q)
        y = self.made(count * head_dim, split=False)
        if operation == "head_norm":
            w = self.weight(head_dim, plain=True)
            b.node(Op.RMS_NORM, [q, w], [y], self.name(), eps=eps, n_heads=count, head_dim=head_dim)
        elif operation == "rope":
            rotated = draw(st.integers(1, head_dim // 2))
            table = b.buffer(self.name(), CONSTANT, F32, ["n_ctx", rotated, 2])
            b.node(
                Op.ROPE,
                [q, self.step_input("positions"), table],
                [y],
                self.name(),
                interleaved=draw(st.booleans()),
                n_heads=count,
                head_dim=head_dim,
            )
        else:
            shape: list[int | str] = ["n_pages", 16, kv_heads, head_dim]
            caches = [b.buffer(self.name(), STATE, F16, shape) for _ in "kv"]
            where = [self.step_input(role) for role in ("positions", "slots", "page_table")]
            if draw(st.booleans()):
                k = self.b.buffer(self.name(), INPUT, F32, ["n_rows", kv_heads, head_dim])
                b.node(Op.KV_WRITE, [k, k, *where], caches, self.name(), n_kv_heads=kv_heads, head_dim=head_dim)
            b.node(
                Op.FLASH_ATTN,
                [q, *caches, *where],
                [y],
                self.name(),
                scale=draw(st.floats(0.01, 4)),
                n_heads=count,
                n_kv_heads=kv_heads,
                head_dim=head_dim,
            )


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """A valid graph of one to about ten nodes, built and so verified."""
    state = _Random(draw)
    for operation in draw(st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=6)):
        state.step(operation)
    for buffer_id in sorted(state.unread):
        state.b.node(Op.STREAM_OUT, [buffer_id], [], state.name())
    return state.b.build()
