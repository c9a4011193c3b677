"""Compares a GPU with the reference: both compute a small graph before the GPU gets a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.base import Backend, Bytes, Capacity, LoweredGraph
from zinc_rt.backends.gpu.device import GpuDevice
from zinc_rt.backends.gpu.lowering import GpuLowering
from zinc_rt.backends.reference.backend import ReferenceBackend
from zinc_rt.errors import ComputedWrong
from zinc_rt.ir.builder import GraphBuilder
from zinc_rt.ir.graph import BufferKind, DType, Graph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.gpu.arithmetic import RESULTS, WORKGROUP, arithmetic
from zinc_rt.kernels.gpu.catalogue import DECODE, kernel_label
from zinc_rt.kernels.reference.arith import fma
from zinc_rt.lang.cache import CompileCache
from zinc_rt.lang.frontend import Spec
from zinc_rt.lang.gpu_library import gpu_kernels
from zinc_rt.numerics import TREE_LANES

_N, _ROWS, _DIM, _CTX, _VOCAB = 64, 2, 16, 300, 40
_POSITION = 290  # behind the first split of attention
HALF: Final = "rounding to float16"
_ARITHMETIC: Final = Spec(arithmetic)
_SIZES = Capacity(_ROWS, 1, _CTX, 1, -(-_CTX // 16))


class WrongResults(ComputedWrong):
    """The GPU's results are not those of the reference."""


class SelfTest:
    """A small model's step on a GPU, which can be repeated. rows: of the step, 2 or 1. Raises `WrongResults`, and what
    running raises.
    """

    def __init__(self, backend: Backend, rows: int = _ROWS) -> None:
        """Lower the model."""
        graph = _graph()
        weights, constants = _contents(graph, _SIZES)
        with ReferenceBackend() as oracle:
            self._want = _logits(oracle, oracle.lower(oracle.plan(graph, _SIZES), weights, constants), rows)
        self._rows = rows
        self._backend, self._lowered = backend, backend.lower(backend.plan(graph, _SIZES), weights, constants)

    def run(self) -> None:
        """Compare one step with the reference's. Raises `WrongResults`."""
        want, got = self._want, _logits(self._backend, self._lowered, self._rows)
        if (got != want).any():
            at = int(np.argmax(got != want))
            raise WrongResults(
                f"{int((got != want).sum())} of {got.size} results of a test are wrong, first {at}: {got[at]:#010x}"
                f" instead of {want[at]:#010x}; this GPU, its driver or its kernels cannot be trusted:"
                " use --device cpu and report it"
            )


def check_results(backend: Backend) -> None:
    """Run a small model's step. Raises `WrongResults`, and what running raises."""
    SelfTest(backend).run()


def prepare(target: str, cache: CompileCache | None, notify: Callable[[str], None] | None = None) -> None:
    """Compile the kernels of the self-test, before a GPU is opened. target: of `lang`. Raises `LangError`."""
    entries = [DECODE["move"], *GpuLowering(_graph(), _SIZES).run().kernels]
    gpu_kernels({kernel_label(entry): entry.spec for entry in entries}, target, cache=cache, notify=notify)


def _graph() -> Graph:
    b = GraphBuilder("selftest")
    f32 = DType.F32

    def temp(name: str) -> int:
        return b.buffer(name, BufferKind.TEMP, f32, ("n_rows", _N))

    def weight(name: str, dtype: DType, *shape: int) -> int:
        return b.buffer(name, BufferKind.WEIGHT, dtype, shape)

    ids, positions, slots = (
        b.buffer(name, BufferKind.INPUT, DType.I32, ("n_rows",)) for name in ("token_ids", "positions", "slots")
    )
    pages = b.buffer("page_table", BufferKind.INPUT, DType.I32, ("n_slots", "max_pages"))
    rows = b.buffer("logit_rows", BufferKind.INPUT, DType.I32, ("n_logits",))
    table = b.buffer("rope_table", BufferKind.CONSTANT, f32, ("n_ctx", _DIM // 2, 2))
    caches = [
        b.buffer(name, BufferKind.STATE, DType.F16, ("n_pages", 16, _N // _DIM, _DIM)) for name in ("keys", "values")
    ]
    n_heads = _N // _DIM
    x, h, k, q, v, mixed, act = map(temp, ("x", "h", "k", "q", "v", "mixed", "act"))
    total, normed, last = map(temp, ("total", "normed", "last"))
    b.node(Op.EMBED, [ids, weight("embd", DType("q8_0"), _VOCAB, _N)], [x])
    b.node(Op.RMS_NORM, [x, weight("norm", f32, _N)], [h], eps=1e-5)
    b.node(Op.MATMUL, [h, weight("wk", DType("q4_0"), _N, _N)], [k])
    b.node(Op.MATMUL, [h, weight("wv", DType.F16, _N, _N)], [v])
    b.node(Op.ROPE, [k, positions, table], [q], interleaved=False, n_heads=n_heads, head_dim=_DIM)
    b.node(Op.KV_WRITE, [q, v, positions, slots, pages], caches, n_kv_heads=n_heads, head_dim=_DIM)
    b.node(
        Op.FLASH_ATTN,
        [h, *caches, positions, slots, pages],
        [mixed],
        scale=0.25,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        head_dim=_DIM,
    )
    b.node(Op.SWIGLU, [mixed, h], [act])
    b.node(Op.RESIDUAL_RMS_NORM, [act, x, weight("norm2", f32, _N)], [total, normed], eps=1e-6)
    b.node(Op.RESIDUAL_ADD, [total, normed], [last])
    logits = b.buffer("logits", BufferKind.OUTPUT, f32, ("n_logits", _VOCAB))
    tokens = b.buffer("tokens", BufferKind.OUTPUT, DType.I32, ("n_logits",))
    b.node(Op.LM_HEAD, [last, weight("out", DType("q8_0"), _VOCAB, _N), rows], [logits])
    b.node(Op.ARGMAX, [logits], [tokens])
    return b.build()


def small_graph() -> Graph:
    """The graph of the test: most operations of a model, with products of three formats."""
    return _graph()


def _contents(graph: Graph, sizes: Capacity) -> tuple[dict[str, Bytes], dict[str, npt.NDArray[np.float32]]]:
    rng = np.random.default_rng(5)
    weights: dict[str, Bytes] = {}
    for b in graph.of_kind(BufferKind.WEIGHT):
        *outer, n = (int(d) for d in b.shape)
        shape = (outer[0] if outer else 1, n)
        if b.dtype is DType.F32:
            weights[b.name] = rng.standard_normal(shape).astype(np.float32).view(np.uint8)
        elif b.dtype is DType.F16:
            weights[b.name] = (rng.standard_normal(shape) / 8).astype(np.float16).view(np.uint8)
        else:
            weights[b.name] = _blocks(rng, shape[0], b.dtype.row_bytes(n) // (n // 32), n // 32)
    angles = rng.uniform(0, 6, (sizes.n_ctx, _DIM // 2))
    table = np.stack([np.cos(angles), np.sin(angles)], axis=2).astype(np.float32)
    return weights, {"rope_table": table}


def _blocks(rng: np.random.Generator, rows: int, block_bytes: int, n_blocks: int) -> Bytes:
    """Blocks of random quants behind a float16 scale."""
    raw = rng.integers(0, 256, (rows, n_blocks, block_bytes), np.uint8)
    raw[:, :, :2] = rng.uniform(0.004, 0.02, (rows, n_blocks, 1)).astype(np.float16).view(np.uint8)
    return raw.reshape(rows, -1)


def _logits(backend: Backend, batch: LoweredGraph, rows: int) -> npt.NDArray[np.uint32]:
    """The logits of a position in the second split, over pages that hold keys at two positions at most, as bits."""
    given: dict[str, list[int]] = {
        "token_ids": [3, 17][-rows:],
        "positions": [_POSITION - 1, _POSITION][-rows:],
        "slots": [0, 0][-rows:],
        "logit_rows": [rows - 1],
        "page_table": list(range(_SIZES.max_pages)),
    }
    for name, values in given.items():
        batch.inputs[name].reshape(-1)[:] = values
    batch.counts[:] = rows, 1
    batch.outputs["logits"].view(np.uint32)[:] = 0xFFFF_FFFF  # a step that writes none must not find the last one's
    backend.submit_and_wait(batch)
    return batch.outputs["logits"].view(np.uint32).reshape(-1).copy()


def check_arithmetic(gpu: GpuDevice, cache: CompileCache | None) -> None:
    """Compare each rounding, and the places of lanes, with NumPy's. Raises `WrongResults`, and what running raises."""
    rng = np.random.default_rng(7)
    x, y, z = (_floats(rng, seed) for seed in range(3))
    n = x.size
    kernels = gpu_kernels({"arithmetic": _ARITHMETIC}, gpu.kernel_target, cache=cache)
    program = gpu.load_kernel(kernels["arithmetic"])
    held = [gpu.alloc(4 * n, heap="gtt", label="operands") for _ in range(3)]
    out = gpu.alloc(4 * n * RESULTS, heap="gtt", use="reads", label="results")
    try:
        for memory, values in zip(held, (x, y, z), strict=True):
            gpu.write(memory, values)
        commands = gpu.commands("arithmetic").dispatch(program, n // WORKGROUP, *held, out, n)
        gpu.wait(gpu.submit(commands))
        got = np.frombuffer(gpu.read(out, 4 * n * RESULTS), np.uint32).reshape(RESULTS, n)
    finally:
        for memory in (*held, out):
            gpu.free(memory)
    results = _results(x, y, z)
    halves = list(results).index(HALF)
    wide = got.copy()
    wide[halves] = got[halves].astype(np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
    for (name, want), bits in zip(results.items(), wide, strict=True):
        exact = np.ascontiguousarray(want).view(np.uint32)
        same = exact == bits
        if want.dtype == np.float32:
            same |= np.isnan(want) & np.isnan(bits.view(np.float32))
        if not same.all():
            at = int(np.argmin(same))
            raise WrongResults(
                f"{name} is not exact on this device: {int((~same).sum())} of {n} results are wrong, first of"
                f" {x[at]!r}, {y[at]!r}, {z[at]!r}: {bits[at]:#010x} instead of {exact[at]:#010x}; use --device cpu"
            )


def _floats(rng: np.random.Generator, seed: int) -> npt.NDArray[np.float32]:
    """f32[65536]: of all sizes, subnormal ones and special ones among them, and ties between half floats."""
    bits = rng.integers(0, 1 << 32, 1 << 16, np.uint32)
    values = bits.view(np.float32)
    values[1::4] = rng.standard_normal(values[1::4].size).astype(np.float32)
    ties = np.arange(values[2::4].size, dtype=np.uint32) << 12
    values[2::4] = (ties + np.uint32(0x33000000) + np.uint32(seed)).view(np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1754942e-38, 65504.0, 65520.0], np.float32)
    values[3::64] = np.resize(np.roll(special, seed), values[3::64].size)
    return values


def _results(
    x: npt.NDArray[np.float32], y: npt.NDArray[np.float32], z: npt.NDArray[np.float32]
) -> dict[str, npt.NDArray[Any]]:
    """What the kernel must give, in its order."""
    n = x.size
    number = np.arange(n, dtype=np.uint32)
    ordered = np.where(np.signbit(x), x, y)  # of equal numbers, that is of zeros, the lesser one
    other = np.where(np.signbit(x), y, x)
    nan = np.isnan(x) | np.isnan(y)
    quiet = np.float32(np.nan)
    with np.errstate(all="ignore"):
        whole = np.where(np.isnan(x), 0, np.clip(np.trunc(x.astype(np.float64)), -(2.0**31), 2.0**31 - 1))
        return {
            "a sum": x + y,
            "a product": x * y,
            "a product and a sum": x * y + z,
            "a fused product and sum": fma(x, y, z),
            "a quotient": x / y,
            "a square root": np.sqrt(x),
            "rounding to an integer": np.rint(x),
            "the greater of two": np.where(nan, quiet, np.where(x == y, other, np.maximum(x, y))),
            "the lesser of two": np.where(nan, quiet, np.where(x == y, ordered, np.minimum(x, y))),
            HALF: x.astype(np.float16).astype(np.float32),
            "float16 as float32": number.astype(np.uint16).view(np.float16).astype(np.float32),
            "a float as an integer": whole.astype(np.int32),
            "a quotient of float64": (x.astype(np.float64) / z.astype(np.float64)).astype(np.float32),
            "the place of a lane": (number % WORKGROUP ^ 16) * 64 + number % TREE_LANES,
        }
