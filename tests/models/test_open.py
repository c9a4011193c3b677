"""An architecture from outside the package: one file, registered, runs on every backend and computes what it says."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.backends.cpu.both import assert_same
from tests.helpers import T, add_tensors, engine_for, logits_of, random_tokens, run_tokens
from tests.models import sandwich
from tests.models.truth import error, int8, rms
from zinc_rt import models
from zinc_rt.cli.summary import summarize
from zinc_rt.engine.engine import Device
from zinc_rt.gguf import GGMLType, GGUFFile, GGUFWriter, ValueType
from zinc_rt.models.errors import ModelError

N_EMBD, N_FF, N_HEADS, N_VOCAB, EPS, N_TOKENS = 64, 96, 4, 61, 1e-5, 40
TOKENS = random_tokens(3, N_TOKENS, N_VOCAB)
KINDS = (0, 2, 1, 1, 0, 0)
KV_HEADS = (2, 4, 1, 1, 2, 2)
WIDTHS = (16, 16, 32, 32, 16, 16)
BASES, SLOWER = {0: 500.0, 1: 20000.0}, 4.0
BEFORE = dict.fromkeys((0, 1, 2, 5), ("attn_norm", "ffn_norm")) | {4: ("attn_norm",)}
BEHIND = dict.fromkeys((0, 2, 3), ("post_attention_norm", "post_ffw_norm"))
BIASES = {0: ("attn_q", "attn_v"), 1: ("attn_output",)}


def shapes() -> dict[str, tuple[int, ...]]:
    """Every tensor of the file."""
    out: dict[str, tuple[int, ...]] = {"token_embd.weight": (N_VOCAB, N_EMBD), "output_norm.weight": (N_EMBD,)}
    for layer in range(len(KINDS)):
        p, q, kv = f"blk.{layer}.", N_HEADS * WIDTHS[layer], KV_HEADS[layer] * WIDTHS[layer]
        rows = {3: {"qkv": q + 2 * kv}, 5: {"q": q}}.get(layer, {"q": q, "k": kv, "v": kv})
        out |= {f"{p}attn_{name}.weight": (n, N_EMBD) for name, n in rows.items()}
        out[f"{p}attn_output.weight"] = (N_EMBD, q)
        if layer == 2:
            out |= {f"{p}attn_q_norm.weight": (32,), f"{p}attn_k_norm.weight": (32,)}
        out |= {f"{p}ffn_up.weight": (2 * N_FF, N_EMBD), f"{p}ffn_down.weight": (N_EMBD, N_FF)}
        out |= {f"{p}{norm}.weight": (N_EMBD,) for norm in (*BEFORE.get(layer, ()), *BEHIND.get(layer, ()))}
        out |= {f"{p}{name}.bias": out[f"{p}{name}.weight"][:1] for name in BIASES.get(layer, ())}
    return out | {"rope_freqs.weight": (16,)}


def written(path: Path, kind: GGMLType = T.F32, **changed: object) -> dict[str, np.ndarray]:
    """Write the file; its tensors as float64."""
    rng, writer = np.random.default_rng(8), GGUFWriter(path)
    writer.add("general.architecture", "sandwich")
    writer.add("tokenizer.ggml.model", "llama")
    numbers = {
        "block_count": len(KINDS),
        "embedding_length": N_EMBD,
        "context_length": 512,
        "feed_forward_length": N_FF,
        "attention.head_count": N_HEADS,
    }
    arrays = {"layer_kinds": KINDS, "attention.head_count_kv": KV_HEADS, "head_widths": WIDTHS}
    floats = {
        "attention.layer_norm_rms_epsilon": EPS,
        "rope.freq_base": BASES[1],
        "rope.freq_base_swa": BASES[0],
        "rope.scaling.factor": SLOWER,
    }
    keys = {**numbers, **{k: np.array(v, np.int32) for k, v in arrays.items()}, **floats, **changed}
    for key, value in keys.items():
        writer.add(f"sandwich.{key}", value, ValueType.UINT32 if isinstance(value, int) else None)
    tensors = add_tensors(writer, shapes(), lambda _, shape: kind if len(shape) == 2 else T.F32, rng)
    writer.write()
    return tensors


class Formulas:
    """The model in float64. `wrong` undoes one thing, so that tests can see that it matters."""

    def __init__(self, tensors: dict[str, np.ndarray], *, quantised: bool, wrong: str = "") -> None:
        self.t, self.quantised, self.wrong = tensors, quantised, wrong
        self.kept: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def product(self, x: np.ndarray, name: str, rows: slice = slice(None)) -> np.ndarray:
        y = (int8(x) if self.quantised else x) @ self.t[f"{name}.weight"][rows].T
        bias = self.t.get(f"{name}.bias")
        return y if bias is None or self.wrong == "biases" else y + bias

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        skipped = self.wrong == "norms behind" and "post" in name
        return x if skipped or f"{name}.weight" not in self.t else rms(x, self.t[f"{name}.weight"], EPS)

    def turned(self, x: np.ndarray, kind: int) -> np.ndarray:
        """x: f64[n, heads, width], row i at position i."""
        if kind == 2 and self.wrong != "NoPE":
            return x
        if self.wrong == "two bases":
            kind = 0
        pairs = x.shape[2] // 2
        angles = np.arange(len(x))[:, None] * BASES.get(kind, 500.0) ** (-np.arange(pairs) / pairs)
        if kind == 1:
            angles = angles / SLOWER / (1 if self.wrong == "factors" else self.t["rope_freqs.weight"])
        a, b = (slice(0, None, 2), slice(1, None, 2)) if kind == 1 else (slice(0, pairs), slice(pairs, None))
        turned, out = (x[..., a] + 1j * x[..., b]) * np.exp(1j * angles)[:, None], x.copy()
        out[..., a], out[..., b] = turned.real, turned.imag
        return out

    def projection(self, h: np.ndarray, side: str, layer: int) -> np.ndarray:
        p, q, kv = f"blk.{layer}.attn_", N_HEADS * WIDTHS[layer], KV_HEADS[layer] * WIDTHS[layer]
        at = {"q": slice(q), "k": slice(q, q + kv), "v": slice(q + kv, None)}[side]
        y = self.product(h, f"{p}qkv", at) if layer == 3 else self.product(h, f"{p}{side}")
        return y.reshape(len(h), -1, WIDTHS[layer])

    def keys_and_values(self, h: np.ndarray, layer: int) -> tuple[np.ndarray, np.ndarray]:
        if layer == 5:
            return self.kept[0 if self.wrong == "shared layer" else 4]
        k, v = (self.projection(h, side, layer) for side in "kv")
        k = self.turned(self.norm(k, f"blk.{layer}.attn_k_norm"), KINDS[layer])
        self.kept[layer] = np.float64(np.float16(k)), np.float64(np.float16(v))  # as the cache holds them
        return self.kept[layer]

    def attention(self, h: np.ndarray, layer: int) -> np.ndarray:
        p, n, width = f"blk.{layer}.", len(h), WIDTHS[layer]
        q = self.norm(self.projection(h, "q", layer), f"{p}attn_q_norm")
        q, (k, v) = self.turned(q, KINDS[layer]), self.keys_and_values(h, layer)
        scale = 1 / 8 if layer == 0 and self.wrong != "scale" else width**-0.5
        out = np.empty_like(q)
        for head in range(N_HEADS):
            shared = head * k.shape[1] // N_HEADS
            scores = q[:, head] @ k[:, shared].T * scale
            scores[np.triu_indices(n, 1)] = -np.inf
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[:, head] = weights / weights.sum(axis=1, keepdims=True) @ v[:, shared]
        return self.product(out.reshape(n, -1), f"{p}attn_output")

    def feed_forward(self, h: np.ndarray, layer: int) -> np.ndarray:
        name = f"blk.{layer}.ffn_up"
        gate, up = self.product(h, name, slice(N_FF)), self.product(h, name, slice(N_FF, None))
        if self.wrong == "gate first":
            gate, up = up, gate
        return self.product(gate / (1 + np.exp(-gate)) * up, f"blk.{layer}.ffn_down")

    def logits(self, tokens: list[int]) -> np.ndarray:
        """f64[n, n_vocab], after each token."""
        x = self.t["token_embd.weight"][tokens]
        for layer in range(len(KINDS)):
            p = f"blk.{layer}."
            h = self.norm(x, f"{p}attn_norm")
            attention = self.norm(self.attention(h, layer), f"{p}post_attention_norm")
            if layer == 4 and self.wrong != "side by side":
                x = x + attention + self.feed_forward(h, layer)
                continue
            x = x + attention
            h = self.norm(x, f"{p}ffn_norm")
            x = x + self.norm(self.feed_forward(h, layer), f"{p}post_ffw_norm")
        return self.product(self.norm(x, "output_norm"), "token_embd")


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    models.register(sandwich)
    yield
    models.unregister(sandwich)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("open")


@cache
def computed(folder: Path, kind: GGMLType) -> tuple[Path, dict[str, np.ndarray], np.ndarray]:
    """A file, its tensors, and the reference's logits."""
    path = folder / f"{kind.name}.gguf"
    tensors = written(path, kind)
    return path, tensors, logits_of(path, TOKENS, kernels="reference")


@pytest.mark.parametrize("kind", [T.F32, T.Q8_0], ids=lambda k: k.name)
def test_it_computes_what_it_says(kind: GGMLType, folder: Path) -> None:
    """float32 differs from float64 by rounding; a key or an activation that is rounded the other way by a step more."""
    _, tensors, got = computed(folder, kind)
    want = Formulas(tensors, quantised=kind is T.Q8_0).logits(TOKENS)
    assert error(got, want) < (1e-2 if kind is T.Q8_0 else 1e-3)
    assert min(error(a, b) for a, b in zip(got, want, strict=True)) < 1e-6
    assert want.std() > 0.5  # logits that say something


@pytest.mark.parametrize(
    "wrong",
    ["biases", "norms behind", "NoPE", "two bases", "factors", "shared layer", "scale", "gate first", "side by side"],
)
def test_the_comparison_notices(wrong: str, folder: Path) -> None:
    _, tensors, got = computed(folder, T.F32)
    assert error(got, Formulas(tensors, quantised=False, wrong=wrong).logits(TOKENS)) > 0.02


@pytest.mark.parametrize("kind", [pytest.param(T.F32, marks=pytest.mark.slow), T.Q8_0], ids=lambda k: k.name)
@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_the_cpu_gives_the_references_bits(kind: GGMLType, threads: int, folder: Path) -> None:
    """In one step and cut into steps."""
    path, _, want = computed(folder, kind)
    with engine_for(path, n_batch=N_TOKENS, threads=threads) as engine:
        for chunk in (N_TOKENS, 7, 1):
            slot = engine.open_sequence()
            got = run_tokens(engine, slot, TOKENS, chunk)
            engine.close_sequence(slot)
            assert_same(got.view(np.uint32), want.view(np.uint32), f"{threads} threads, chunks of {chunk}")


@pytest.mark.slow
def test_an_emulated_gpu_gives_the_references_bits(tmp_path: Path) -> None:
    written(tmp_path / "m.gguf", T.Q8_0)
    tokens = random_tokens(3, 9, N_VOCAB)
    want = logits_of(tmp_path / "m.gguf", tokens, kernels="reference")
    with engine_for(tmp_path / "m.gguf", n_ctx=32, n_batch=7, device=Device.emu) as engine:
        got = run_tokens(engine, engine.open_sequence(), tokens, 7)
    assert_same(got.view(np.uint32), want.view(np.uint32), "emu")


def test_the_whole_package_takes_it(tmp_path: Path) -> None:
    """`define` and what stands on it: the states by kind of layer, the bytes of a step, the command line's summary."""
    written(tmp_path / "m.gguf")
    with GGUFFile.open(tmp_path / "m.gguf") as file:
        definition, summary = models.define(file), summarize(file)
    assert (summary.runs, summary.reason) == (True, "")
    assert isinstance(definition.info, sandwich.SandwichInfo)
    (state,) = definition.states
    assert (state.name, state.kind, state.layers) == ("kv", models.StateKind.PAGES, (0, 1, 2, 3, 4))
    assert state.position_bytes == sum(2 * 2 * kv * w for kv, w in zip(KV_HEADS[:5], WIDTHS[:5], strict=True))
    assert definition.constants["rope_local"](20).shape == (20, 8, 2)
    assert definition.constants["rope_global"](20).shape == (20, 16, 2)
    with engine_for(tmp_path / "m.gguf", n_ctx=64, n_slots=3, kernels="reference") as engine:
        assert engine.plan is not None
        assert engine.plan.kv_cache == 3 * 64 * state.position_bytes
        shared = 2 * 2 * KV_HEADS[4] * WIDTHS[4]  # layer 5 reads what layer 4 wrote
        assert engine.step_bytes(10) - engine.step_bytes(0) == 10 * (state.position_bytes + shared)


def test_names_are_taken_once() -> None:
    with pytest.raises(ModelError, match="'sandwich' is registered already"):
        models.register(sandwich)


def test_unregistered_it_is_unknown(tmp_path: Path) -> None:
    written(tmp_path / "m.gguf")
    models.unregister(sandwich)
    try:
        with GGUFFile.open(tmp_path / "m.gguf") as file, pytest.raises(ModelError, match="'sandwich'"):
            models.define(file)
    finally:
        models.register(sandwich)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("layer_kinds", np.array([0, 1], np.int32), r"sandwich.layer_kinds is \[0, 1\], 6 integers are needed"),
        ("layer_kinds", np.array([0, 1, 2, 3, 0, 0], np.int32), "is 3 in layer 3, it must be between 0 and 2"),
        ("layer_kinds", np.zeros(6, np.float32), "6 integers are needed"),
        ("layer_kinds", 7, "is 7, it must be between 0 and 2"),
        ("layer_kinds", "all", "an integer is needed"),
        ("attention.head_count", 6, "n_heads 6 must be a multiple of n_kv_heads 4"),
    ],
)
def test_keys_by_layer(key: str, value: object, message: str, tmp_path: Path) -> None:
    written(tmp_path / "m.gguf", **{key: value})
    with GGUFFile.open(tmp_path / "m.gguf") as file, pytest.raises(ModelError, match=message):
        models.define(file)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("head_widths", np.array([16, 16, 2048, 32, 16, 16], np.int32), r"heads of 2048 elements \(head_dim\)"),
        ("attention.head_count", 516, r"258 query heads to a key-value head \(n_heads / n_kv_heads\)"),
    ],
)
def test_limits_hold_for_every_family(key: str, value: object, message: str, tmp_path: Path) -> None:
    written(tmp_path / "m.gguf", **{key: value})
    with GGUFFile.open(tmp_path / "m.gguf") as file, pytest.raises(ModelError, match=message):
        models.define(file)
