"""Writes GGUF models of real shapes with random weights: speed does not depend on the values of the weights.

    python benchmarks/random_model.py FOLDER [qwen3-0.6b-q8_0 qwen3-30b-a3b-12l-q4_k_m ...]

Without names: all models of the table (41 GB). `12l` keeps the first 12 layers of a model that would not fit.
The text such a model makes is noise.
"""

from __future__ import annotations

import argparse
import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rows import FAMILIES, LARGE, SMALL, USUAL
from rows import FORMATS as MEASURED
from shapes import MIXES, SIZES, Shape, Sizes

from zinc_rt.formats.kinds import Scale
from zinc_rt.formats.record import Format
from zinc_rt.formats.table import FORMATS
from zinc_rt.gguf import GGMLType, GGUFWriter, ValueType
from zinc_rt.gguf.blocks import QUANTIZABLE, dequantize, quantize
from zinc_rt.text.bpe import byte_to_char

T = GGMLType
Bytes = npt.NDArray[np.uint8]


NAMES = [
    *(f"{SMALL}-{quant}" for quant in (*USUAL, *MEASURED)),
    *(f"{LARGE}-{quant}" for quant in ("q4_0", "q4_k_m")),
    *FAMILIES.values(),
    "toy-q8_0",
]
"""What is written when nothing is named."""
HOLE = 1 << 16
"""Bytes from which on a tensor is left out, where it may be."""
STD = 0.02
"""Spread of the weights: near 1/sqrt(n) for the widths here, so that nothing grows without bound."""
POOL_ROWS, POOL_COLUMNS = 256, 4096


def shapes(sizes: Sizes) -> Iterator[tuple[str, str, int, Shape]]:
    """(name, role, layer or -1, shape) of every tensor."""
    for role, shape in sizes.model_tensors().items():
        yield f"{role}.weight", role, -1, shape
    for i in range(sizes.n_layers):
        for role, shape in sizes.layer(i).items():
            # A role with a dot is the rest of the name; a last dot stands for a name without ending.
            yield f"blk.{i}.{role.rstrip('.') if '.' in role else role + '.weight'}", role, i, shape


def pool(kind: GGMLType, rng: np.random.Generator) -> Bytes:
    """About a million random weights as blocks of the format, u8[n]."""
    if kind not in QUANTIZABLE:
        f = FORMATS[kind.name]
        raw = rng.integers(0, 256, (POOL_ROWS * POOL_COLUMNS // f.block, f.block_bytes), np.uint8)
        scale = STD / float(dequantize(kind, _with_scales(raw, f, 1.0, rng)).std())
        return _with_scales(raw, f, scale, rng).reshape(-1)
    values = rng.standard_normal((POOL_ROWS, POOL_COLUMNS)).astype(np.float32) * np.float32(STD)
    return quantize(kind, values).reshape(-1)


def _with_scales(raw: Bytes, f: Format, size: float, rng: np.random.Generator) -> Bytes:
    """Blocks u8[n, block_bytes] with scales of about this size. Raises ValueError for a format whose scale is neither a
    float16 nor a power of two.
    """
    if f.scale == Scale.POWER_OF_TWO:
        raw[:, f.d] = 128 + round(math.log2(size))
    elif f.scale == Scale.ODD_THREES:
        nibbles = (size * rng.uniform(0.9, 1.1, len(raw))).astype("<f2").view("<u2")[:, None] >> np.uint16(
            [0, 4, 8, 12]
        )
        small = np.ascontiguousarray(raw[:, f.scales :]).view("<u2") & 0xFFF
        raw[:, f.scales :] = (small | nibbles << 12).astype("<u2").view(np.uint8)
    elif not f.halves:
        raise ValueError(f"{f.name} has scales of a kind that random weights know nothing of: {f.scale!s}")
    # A minimum of half the greatest integer centres the weights.
    for at, part in zip(f.halves, (1.0, f.integers[1] / 2), strict=False):
        halves = (size * part * rng.uniform(0.9, 1.1, len(raw))).astype("<f2")
        raw[:, at : at + 2] = halves[:, None].view(np.uint8)
    return raw


def vocabulary(n: int) -> tuple[list[str], list[str]]:
    """Byte-level tokens and merges: the bytes, then pairs and triples of letters, then two control tokens."""
    letters = [
        byte_to_char()[code] for code in b" etaoinshrdlcumwfgypbvkjxqzETAOINSHRDLCUMWFGYPBVKJXQZ0123456789.,;:!?-+*/"
    ]
    pairs = itertools.product(letters, letters)
    triples = ((a + b, c) for a, b, c in itertools.product(letters, letters, letters))
    merges = list(itertools.islice(itertools.chain(pairs, triples), n - 258))
    return [*byte_to_char(), *(a + b for a, b in merges), "<|endoftext|>", "<|im_end|>"], [
        f"{a} {b}" for a, b in merges
    ]


def text_keys(n_vocab: int) -> dict[str, Any]:
    """The tokenizer's keys of a file."""
    tokens, merges = vocabulary(n_vocab)
    n = len(tokens)
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
    return {f"tokenizer.ggml.{key}": value for key, value in text.items()}


def metadata(name: str, quant: str, sizes: Sizes) -> dict[str, Any]:
    """The keys of the file."""
    return {
        "general.architecture": sizes.architecture,
        "general.name": f"random {name}",
        "general.file_type": MIXES[quant].file_type,
        "general.quantization_version": 2,
        **{f"{sizes.architecture}.{key}": value for key, value in sizes.keys().items()},
        **text_keys(sizes.n_vocab),
    }


def parse(name: str) -> tuple[Sizes, str]:
    """The sizes and the mix of a name: MODEL-MIX, or MODEL-12l-MIX for its first 12 layers. Raises ValueError."""
    base, _, quant = name.rpartition("-")
    cut = re.fullmatch(r"(.+)-(\d+)l", base)
    sizes = SIZES.get(cut[1] if cut else base)
    if sizes is None or quant not in MIXES:
        raise ValueError(f"there is no model {name}; there are {', '.join(SIZES)} as {', '.join(MIXES)}")
    if cut is None:
        return sizes, quant
    n_layers = int(cut[2])
    if not 0 < n_layers <= sizes.n_layers:
        raise ValueError(f"{name} has {n_layers} layers, {cut[1]} has 1 to {sizes.n_layers}")
    return replace(sizes, n_layers=n_layers), quant


def is_vector(name: str, shape: Shape) -> bool:
    """Whether a tensor stays float32 and is no product."""
    return len(shape) == 1 or name.endswith(".bias")


def _vector(name: str, shape: Shape, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Values of a tensor that stays float32 and is no product: norms are near 1."""
    values = rng.standard_normal(shape)
    if name.endswith("ssm_a"):
        return (-np.exp(values)).astype(np.float32)
    if name == "rope_freqs.weight":
        return np.where(np.arange(shape[0]) < shape[0] // 4, 1.0, 1e30).astype(np.float32)
    centre = 0.0 if name.endswith((".bias", "attn_sinks.weight", "ffn_gate_inp_shexp.weight")) else 1.0
    return (centre + 0.1 * values).astype(np.float32)


def write(path: Path, name: str) -> int:
    """Write the model of that name; returns the file's size. Raises `GGUFError`, ValueError for no such name."""
    sizes, quant = parse(name)
    rng = np.random.default_rng(0)
    writer = GGUFWriter(path)
    for key, value in metadata(name, quant, sizes).items():
        writer.add(key, value, ValueType.UINT32 if type(value) is int else None)
    tensors = [
        (tensor, None if is_vector(tensor, shape) else sizes.format_of(role, layer, quant), shape)
        for tensor, role, layer, shape in shapes(sizes)
    ]
    largest: dict[GGMLType, int] = {}
    for _, kind, shape in tensors:
        if kind is not None:
            largest[kind] = max(largest.get(kind, 0), math.prod(shape[:-1]) * kind.row_bytes(shape[-1]))
    # Every tensor is a window of one long repetition: nothing is copied but by the writer.
    pools = {kind: pool(kind, rng) for kind in largest}
    repeated = {kind: np.resize(part, largest[kind] + part.size) for kind, part in pools.items()}
    for tensor, kind, shape in tensors:
        if kind is None:
            writer.add_tensor(tensor, _vector(tensor, shape, rng), T.F32, shape)
        else:
            start = int(rng.integers(0, pools[kind].size // kind.block_bytes)) * kind.block_bytes
            end = start + math.prod(shape[:-1]) * kind.row_bytes(shape[-1])
            writer.add_tensor(tensor, repeated[kind][start:end], kind, shape)
    return writer.write()


def write_holes(path: Path, name: str) -> int:
    """Write a file of that model's size whose tensors are holes, which take no room: for what reads no weights, as
    `zinc bench --predict`. Returns its size. Raises as `write`.
    """
    sizes, quant = parse(name)
    writer = GGUFWriter(path)
    for key, value in metadata(name, quant, sizes).items():
        writer.add(key, value, ValueType.UINT32 if type(value) is int else None)
    for tensor, role, layer, shape in shapes(sizes):
        kind = T.F32 if is_vector(tensor, shape) else sizes.format_of(role, layer, quant)
        writer.add_tensor(tensor, np.zeros(math.prod(shape[:-1]) * kind.row_bytes(shape[-1]), np.uint8), kind, shape)
    with path.open("wb") as out:
        for i, part in enumerate(writer._parts()):
            if i == 0 or len(part) < HOLE:  # the first part is all that stands before the tensors
                out.write(part)
            else:
                out.seek(len(part), 1)
        out.truncate(out.tell())
    return path.stat().st_size


def main() -> None:
    """Write the models that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"MODEL-MIX or MODEL-12l-MIX; models: {', '.join(SIZES)}; mixes: {', '.join(MIXES)}",
    )
    parser.add_argument("--holes", action="store_true", help="leave out the weights: files that take no room")
    args = parser.parse_args()
    for name in args.names:
        try:
            parse(name)
        except ValueError as error:
            parser.error(str(error))
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.names or NAMES:
        path = args.folder / f"{name}.gguf"
        if path.exists():
            print(f"{path.name}: exists already")
        else:
            written = write_holes(path, name) if args.holes else write(path, name)
            print(f"{path.name}: {written / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
