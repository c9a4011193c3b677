"""Writes GGUF models of real shapes with random weights: speed does not depend on what the weights say.

    python benchmarks/random_model.py FOLDER [qwen3-0.6b-q8_0 ...]

Without names: all models of the table (13 GB). The text such a model makes is noise.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from zinc_rt.formats.table import FORMATS
from zinc_rt.gguf import GGMLType, GGUFWriter, ValueType
from zinc_rt.gguf.blocks import QUANTIZABLE, dequantize, quantize
from zinc_rt.text.bpe import byte_to_char

T = GGMLType
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Sizes:
    """A dense qwen3 model. The defaults are Qwen3-0.6B's, from its configuration file."""

    n_embd: int = 1024
    n_layers: int = 28
    n_heads: int = 16
    n_kv_heads: int = 8
    head_dim: int = 128
    n_ff: int = 3072
    n_vocab: int = 151_936
    tied: bool = True


SIZES = {
    "qwen3-0.6b": Sizes(),
    "qwen3-8b": Sizes(n_embd=4096, n_layers=36, n_heads=32, n_ff=12288, tied=False),
    # All overhead. Heads of 64: llama.cpp's float16 dot product is scalar below that, which is not what is compared.
    "toy": Sizes(n_embd=64, n_heads=2, n_kv_heads=1, head_dim=64, n_ff=128, n_vocab=512),
}
QUANTS = {"q8_0": T.Q8_0, "q4_0": T.Q4_0, "q4_k_m": T.Q4_K, "q6_k": T.Q6_K, "bf16": T.BF16}
NAMES = [
    *(f"qwen3-0.6b-{quant}" for quant in QUANTS),
    *(f"qwen3-8b-{quant}" for quant in ("q4_0", "q4_k_m")),
    "toy-q8_0",
]
FILE_TYPES = {"q8_0": 7, "q4_0": 2, "q4_k_m": 15, "q6_k": 18, "bf16": 32}
"""general.file_type: llama.h, enum llama_ftype."""
STD = 0.02
"""Of the weights: near 1/sqrt(n) for the widths here, so that nothing grows without bound."""
POOL_ROWS, POOL_COLUMNS = 256, 4096


def shapes(sizes: Sizes) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    """(name, layer or -1, shape) of every tensor."""
    q, kv, n = sizes.n_heads * sizes.head_dim, sizes.n_kv_heads * sizes.head_dim, sizes.n_embd
    yield "token_embd.weight", -1, (sizes.n_vocab, n)
    yield "output_norm.weight", -1, (n,)
    if not sizes.tied:
        yield "output.weight", -1, (sizes.n_vocab, n)
    layer = {
        "attn_norm": (n,),
        "attn_q": (q, n),
        "attn_k": (kv, n),
        "attn_v": (kv, n),
        "attn_q_norm": (sizes.head_dim,),
        "attn_k_norm": (sizes.head_dim,),
        "attn_output": (n, q),
        "ffn_norm": (n,),
        "ffn_gate": (sizes.n_ff, n),
        "ffn_up": (sizes.n_ff, n),
        "ffn_down": (n, sizes.n_ff),
    }
    for i in range(sizes.n_layers):
        for role, shape in layer.items():
            yield f"blk.{i}.{role}.weight", i, shape


def format_of(name: str, layer: int, quant: str, sizes: Sizes) -> GGMLType:
    """The mix called Q4_K_M keeps the head, and half of the value and down matrices, at six bits.

    Which layers' those are: llama.cpp, use_more_bits.
    """
    if quant != "q4_k_m":
        return QUANTS[quant]
    eighth = sizes.n_layers // 8
    more = layer < eighth or layer >= 7 * sizes.n_layers // 8 or (layer - eighth) % 3 == 2
    head = name == ("token_embd.weight" if sizes.tied else "output.weight")
    sensitive = "attn_v" in name or "ffn_down" in name
    return T.Q6_K if head or (sensitive and more) else T.Q4_K


def pool(kind: GGMLType, rng: np.random.Generator) -> Bytes:
    """About a million random weights as blocks of the format, u8[n]."""
    if kind not in QUANTIZABLE:
        f = FORMATS[kind.name]
        raw = rng.integers(0, 256, (POOL_ROWS * POOL_COLUMNS // f.block, f.block_bytes), np.uint8)
        # A minimum of half the greatest integer centres the weights.
        sizes = (1.0, f.integers[1] / 2)
        scale = STD / float(dequantize(kind, _with_scales(raw, f.halves, sizes, rng)).std())
        return _with_scales(raw, f.halves, [scale * size for size in sizes], rng).reshape(-1)
    values = rng.standard_normal((POOL_ROWS, POOL_COLUMNS)).astype(np.float32) * np.float32(STD)
    return quantize(kind, values).reshape(-1)


def _with_scales(raw: Bytes, places: Iterable[int], sizes: Iterable[float], rng: np.random.Generator) -> Bytes:
    """Blocks u8[n, block_bytes] with float16 of about these sizes at these places."""
    for at, size in zip(places, sizes, strict=False):
        halves = (size * rng.uniform(0.9, 1.1, len(raw))).astype("<f2")
        raw[:, at : at + 2] = halves[:, None].view(np.uint8)
    return raw


def vocabulary(n: int) -> tuple[list[str], list[str]]:
    """Byte-level tokens and merges: the bytes, then pairs and triples of letters, then two control tokens."""
    letters = [byte_to_char()[code] for code in b" etaoinshrdlcumwfgypbvkjxqzETAOINSHRDLCUMWFGYPBVKJXQZ0123456789"]
    pairs = itertools.product(letters, letters)
    triples = ((a + b, c) for a, b, c in itertools.product(letters, letters, letters))
    merges = list(itertools.islice(itertools.chain(pairs, triples), n - 258))
    return [*byte_to_char(), *(a + b for a, b in merges), "<|endoftext|>", "<|im_end|>"], [
        f"{a} {b}" for a, b in merges
    ]


def metadata(name: str, quant: str, sizes: Sizes) -> dict[str, Any]:
    """The keys of the file."""
    tokens, merges = vocabulary(sizes.n_vocab)
    n = len(tokens)
    model = {
        "context_length": 40_960,
        "embedding_length": sizes.n_embd,
        "block_count": sizes.n_layers,
        "feed_forward_length": sizes.n_ff,
        "attention.head_count": sizes.n_heads,
        "attention.head_count_kv": sizes.n_kv_heads,
        "attention.key_length": sizes.head_dim,
        "attention.value_length": sizes.head_dim,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e6,
    }
    text = {
        "model": "gpt2",
        "pre": "qwen2",
        "tokens": tokens,
        "token_type": np.array([1] * (n - 2) + [3, 3], np.int32),  # normal; control
        "merges": merges,
        "bos_token_id": n - 2,
        "eos_token_id": n - 1,
        "add_bos_token": False,
    }
    return {
        "general.architecture": "qwen3",
        "general.name": f"random {name}",
        "general.file_type": FILE_TYPES[quant],
        "general.quantization_version": 2,
        **{f"qwen3.{key}": value for key, value in model.items()},
        **{f"tokenizer.ggml.{key}": value for key, value in text.items()},
    }


def write(path: Path, name: str) -> int:
    """Write the model of that name; returns the file's size. Raises `GGUFWriteError`."""
    base, _, quant = name.rpartition("-")
    sizes = SIZES[base]
    rng = np.random.default_rng(0)
    writer = GGUFWriter(path)
    for key, value in metadata(name, quant, sizes).items():
        writer.add(key, value, ValueType.UINT32 if type(value) is int else None)
    tensors = [(tensor, format_of(tensor, layer, quant, sizes), shape) for tensor, layer, shape in shapes(sizes)]
    largest: dict[GGMLType, int] = {}
    for _, kind, shape in tensors:
        if len(shape) == 2:
            largest[kind] = max(largest.get(kind, 0), shape[0] * kind.row_bytes(shape[1]))
    # Every tensor is a window of one long repetition: nothing is copied but by the writer.
    pools = {kind: pool(kind, rng) for kind in largest}
    repeated = {kind: np.resize(part, largest[kind] + part.size) for kind, part in pools.items()}
    for tensor, kind, shape in tensors:
        if len(shape) == 1:
            norm = (1 + 0.1 * rng.standard_normal(shape)).astype(np.float32)
            writer.add_tensor(tensor, norm, T.F32, shape)
        else:
            start = int(rng.integers(0, pools[kind].size // kind.block_bytes)) * kind.block_bytes
            end = start + shape[0] * kind.row_bytes(shape[1])
            writer.add_tensor(tensor, repeated[kind][start:end], kind, shape)
    return writer.write()


def main() -> None:
    """Write the models that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    args = parser.parse_args()
    if unknown := sorted(set(args.names) - set(NAMES)):
        parser.error(f"there is no model {', '.join(unknown)}; there are {', '.join(NAMES)}")
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.names or NAMES:
        path = args.folder / f"{name}.gguf"
        if path.exists():
            print(f"{path.name}: is there already")
        else:
            print(f"{path.name}: {write(path, name) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
