"""Writes models of real widths from the tiny ones of the tests: any architecture that has a case there.

    python benchmarks/grown_model.py FOLDER --mix q4_k_m seed_oss minimax-m2 ...

A case's layers and the kinds of its tensors stay; the keys get the widths of a published model (`WIDTHS`), and the
architecture's own definition says which shape each tensor then has. So a few layers of a large model are timed as they
would be in the whole. The text such a model makes is noise.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from random_model import MIXES, pool, text_keys

sys.path.insert(0, str(Path(__file__).parents[1]))  # the tests, which are no package of an installation
from tests.models.families import CASES
from tests.models.families.build import Case, made_up, write_case
from tests.models.families.embedders import EMBEDDERS
from zinc_rt.gguf import GGMLType, GGUFFile, GGUFWriter, TensorInfo, ValueType
from zinc_rt.models.architectures import architecture_for
from zinc_rt.models.graph_tensors import GraphTensors

Shape = tuple[int, ...]
_HEADS = "attention.head_count"
_BY_TOKEN = ("token_embd.weight", "output.weight", "output.bias")
"""Tensors with a row for each token, of which a case has few."""
_EXPERTS_BY_TOKEN = "ffn_gate_tid2eid.weight"
"""One more, of whole numbers."""


def _sizes(n_embd: int, heads: int, kv_heads: int, head_dim: int, n_ff: int, **more: Any) -> dict[str, Any]:
    """Keys of an attention layer and a feed-forward part; `more`: others, with __ for a dot."""
    return {
        "embedding_length": n_embd,
        _HEADS: heads,
        f"{_HEADS}_kv": kv_heads,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "feed_forward_length": n_ff,
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def _experts(count: int, used: int, width: int, **more: Any) -> dict[str, Any]:
    return {"expert_count": count, "expert_used_count": used, "expert_feed_forward_length": width, **more}


def _scan(inner: int, state: int, heads: int, groups: int) -> dict[str, Any]:
    return {
        "ssm.inner_size": inner, "ssm.state_size": state, "ssm.time_step_rank": heads, "ssm.group_count": groups,
        "ssm.conv_kernel": 4,
    }  # fmt: skip


def _latent(rank: int, plain: int, turned: int, value: int, q_rank: int) -> dict[str, Any]:
    return {
        "attention.kv_lora_rank": rank, "attention.key_length_mla": plain + turned,
        "attention.value_length_mla": value, "attention.q_lora_rank": q_rank, "rope.dimension_count": turned,
    }  # fmt: skip


_INDEXED = {
    **_latent(512, 128, 64, 128, 1536),
    "attention.indexer.head_count": 64,
    "attention.indexer.key_length": 128,
    "attention.indexer.top_k": 2048,
}

WIDTHS: dict[str, tuple[int, Mapping[str, Any]]] = {
    # Dense.
    "seed_oss": (155_136, _sizes(5120, 80, 8, 128, 27_648)),
    "ernie4_5": (103_424, _sizes(1024, 16, 2, 128, 3072)),
    "hunyuan-dense": (128_167, _sizes(4096, 32, 8, 128, 14_336)),
    "exaone4": (102_400, _sizes(2048, 32, 8, 64, 4096)),
    "internlm2": (92_544, _sizes(4096, 32, 8, 128, 14_336)),
    "minicpm": (73_448, _sizes(4096, 32, 2, 128, 16_384)),
    "gemma": (256_000, _sizes(3072, 16, 16, 256, 24_576)),
    "arcee": (128_004, _sizes(2560, 20, 4, 128, 18_432)),
    "nemotron": (256_000, _sizes(4096, 48, 8, 128, 16_384)),
    "apertus": (131_072, _sizes(4096, 32, 8, 128, 21_504)),
    "cohere2": (255_000, _sizes(4096, 32, 8, 128, 14_336)),
    "starcoder2": (49_152, _sizes(4608, 36, 4, 128, 18_432)),
    "stablelm": (100_352, _sizes(2048, 32, 32, 64, 5632)),
    "falcon": (65_024, _sizes(4544, 71, 1, 64, 18_176)),
    "muse-glimmer": (200_000, _sizes(5120, 40, 8, 128, 17_408)),
    "gptneox": (50_432, _sizes(4096, 32, 32, 128, 16_384, rope__dimension_count=32)),
    "minicpm3": (
        73_448,
        {
            **_sizes(2560, 40, 40, 96, 6400, attention__value_length=64, rope__dimension_count=32),
            "attention.q_lora_rank": 768,
            "attention.kv_lora_rank": 256,
        },
    ),
    # Experts. Those of hundreds are fewer here: a token reads as many.
    "minimax-m2": (200_064, {**_sizes(3072, 48, 8, 128, 1536), **_experts(64, 8, 1536)}),
    "dots1": (152_064, {**_sizes(4096, 32, 32, 128, 10_944), **_experts(128, 6, 1408)}),
    "bailingmoe2": (157_184, {**_sizes(2048, 16, 4, 128, 5120), **_experts(256, 8, 512)}),
    "olmoe": (50_304, {**_sizes(2048, 16, 16, 128, 1024), **_experts(64, 8, 1024)}),
    "ernie4_5-moe": (103_424, {**_sizes(2560, 20, 4, 128, 12_288), **_experts(64, 6, 1536)}),
    "hunyuan-moe": (128_167, {**_sizes(4096, 32, 8, 128, 3072), **_experts(64, 8, 3072)}),
    "exaone-moe": (153_600, {**_sizes(6144, 64, 8, 128, 18_432), **_experts(64, 8, 2048)}),
    "afmoe": (200_192, {**_sizes(2048, 32, 4, 128, 6144), **_experts(128, 8, 1024)}),
    "smallthinker": (151_936, {**_sizes(2560, 28, 4, 128, 768), **_experts(64, 6, 768)}),
    "mistral4": (
        131_072,
        {
            **_sizes(4096, 32, 1, 320, 12_288, attention__value_length=256),
            **_experts(128, 4, 2048),
            **_latent(256, 128, 64, 128, 1024),
        },
    ),
    "deepseek32": (
        129_280,
        {**_sizes(7168, 32, 1, 576, 18_432, attention__value_length=512), **_experts(32, 8, 2048), **_INDEXED},
    ),
    "mimo2": (
        152_576,
        {
            **_sizes(4096, 64, 8, 192, 16_384, attention__value_length=128, rope__dimension_count=64),
            **_experts(64, 8, 2048),
        },
    ),
    "llama4": (202_048, {**_sizes(5120, 40, 8, 128, 16_384, rope__dimension_count=128), **_experts(16, 1, 8192)}),
    "kimi-linear": (
        163_840,
        {
            **_sizes(2304, 32, 1, 576, 9216, attention__value_length=512, kda__head_dim=128),
            **_experts(256, 8, 1024),
            **{k: v for k, v in _latent(512, 128, 64, 128, 0).items() if k != "attention.q_lora_rank"},
        },
    ),
    "glm-dsa": (
        32_768,  # of 154,880
        {
            **_sizes(6144, 64, 1, 576, 12_288, attention__value_length=512),
            **_experts(8, 8, 2048),
            **_INDEXED,
            **_latent(512, 192, 64, 256, 2048),
            "attention.indexer.head_count": 32,
        },
    ),
    "deepseek4": (
        129_280,
        {
            **_sizes(4096, 64, 1, 512, 0, rope__dimension_count=64, attention__q_lora_rank=1024),
            **_experts(8, 6, 2048, swiglu_clamp_exp=10.0),
            "attention.sliding_window": 128,
            "attention.output_group_count": 8,
            "attention.output_lora_rank": 1024,
            "attention.compress_ratios": [0, 4, 128],
            "attention.indexer.head_count": 64,
            "attention.indexer.key_length": 128,
            "attention.indexer.top_k": 512,
            "rope.scaling.factor": 16.0,
            "rope.scaling.original_context_length": 65_536,
        },
    ),
    "step35": (
        128_896,
        {
            **_sizes(4096, 0, 8, 128, 11_264, rope__dimension_count=128, rope__dimension_count_swa=128),
            **_experts(12, 8, 1280, expert_shared_feed_forward_length=1280),
            _HEADS: [64, 96, 96, 96],
            "attention.sliding_window": 512,
            "swiglu_clamp_exp": 0.0,
            "swiglu_clamp_shexp": 0.0,
        },
    ),
    "phimoe": (32_064, {**_sizes(4096, 32, 8, 128, 6400), **_experts(8, 2, 6400)}),
    "bailingmoe3": (
        157_184,
        {
            **_sizes(1536, 16, 1, 576, 4608, attention__value_length=512, kda__head_dim=128),
            **_experts(128, 8, 512),
            **_latent(512, 128, 64, 128, 256),
        },
    ),
    "qwen4exp": (
        248_320,
        {
            **_sizes(2560, 24, 2, 256, 640, rope__dimension_count=64),
            **_experts(24, 10, 640, expert_shared_feed_forward_length=640),
            **_scan(6144, 128, 48, 16),
            "rope.dimension_sections": [11, 11, 10, 0],
            "attention.indexer.head_count": 4,
            "attention.indexer.key_length": 128,
            "attention.indexer.top_k": 2048,
            "hyper_connection.low_rank": 320,
            "embedding_length_per_layer_input": 640,
            "ple.head_offsets": np.arange(4, dtype=np.uint64) * np.uint64(20_011),
            "ple.head_vocab_sizes": np.full(4, 20_011, np.uint64),
        },
    ),
    "qwen35": (
        248_320,
        {
            **_sizes(5120, 24, 4, 256, 17_408, rope__dimension_count=64),
            **_scan(6144, 128, 48, 16),
            "rope.dimension_sections": [11, 11, 10, 0],
        },
    ),
    "glm4moe": (151_552, {**_sizes(4096, 96, 8, 128, 10_944), **_experts(128, 8, 1408)}),
    # State spaces: `ssm.time_step_rank` is the number of heads of a scan.
    "mamba2": (50_288, {"embedding_length": 2560, **_scan(5120, 128, 80, 1)}),
    "granitehybrid": (
        100_352,
        {
            **_sizes(1536, 12, 4, 128, 512, expert_shared_feed_forward_length=1024),
            **_experts(64, 6, 512),
            **_scan(3072, 128, 48, 1),
        },
    ),
    "falcon-h1": (130_048, {**_sizes(3072, 12, 2, 128, 12_288), **_scan(3072, 256, 24, 1)}),
    "mamba": (50_280, {"embedding_length": 2560, **_scan(5120, 16, 160, 0)}),
    "jamba": (
        65_536,
        {**_sizes(4096, 32, 8, 128, 14_336), "expert_count": 3, "expert_used_count": 2, **_scan(8192, 16, 256, 0)},
    ),
    "nemotron_h_moe": (
        131_072,
        {
            **_sizes(2688, 32, 2, 128, 1856, expert_shared_feed_forward_length=3712),
            **_experts(28, 6, 1856),
            **_scan(4096, 128, 64, 8),
        },
    ),
    "nemotron_h": (131_072, {**_sizes(4096, 32, 8, 128, 21_504), **_scan(8192, 128, 128, 8)}),
    # Models that make vectors of texts.
    "modern-bert": (50_368, _sizes(768, 12, 12, 64, 1152, context_length=8192)),
    "jina-bert-v2": (30_528, _sizes(768, 12, 12, 64, 3072, context_length=8192)),
    "jina-bert-v3": (250_002, _sizes(1024, 16, 16, 64, 4096, context_length=8192)),
    "nomic-bert-moe": (250_048, {**_sizes(768, 12, 12, 64, 3072, context_length=512), "expert_count": 8}),
}
"""Of a case: the published model's vocabulary, and the keys that say its widths."""


def shapes_of(case: Case) -> dict[str, Shape]:
    """The shape of each tensor that the case's architecture reads with the case's keys."""
    found: dict[str, Shape] = {}

    def tensor(self: GraphTensors, name: str, shape: Shape, *, plain: bool = False) -> TensorInfo:
        found[name] = tuple(shape)
        kind = GGMLType.F32
        there = self.file.tensors.get(name)
        return TensorInfo(name, tuple(shape), kind, 0, 0) if there is None else replace(there, shape=tuple(shape))

    def vector(self: GraphTensors, name: str, n: int) -> Any:
        if name not in self.file.tensors:
            return None
        found[name] = (n,)
        self._host.add(name)
        return np.ones(n, np.float32)

    with tempfile.TemporaryDirectory() as folder:
        path = write_case(Path(folder) / "tiny.gguf", case).path
        with (
            GGUFFile.open(path) as file,
            mock.patch.object(GraphTensors, "_tensor", tensor),
            mock.patch.object(GraphTensors, "vector", vector),
        ):
            architecture_for(case.architecture).define(file, case.architecture)
    return found


def grown(name: str) -> tuple[Case, int]:
    """The case with the widths of its published model, and that model's vocabulary."""
    n_vocab, keys = WIDTHS[name]
    case = (CASES | EMBEDDERS)[name]
    one_each = {
        key: [value if old else old for old in case.keys[key]]  # 0 says what kind of layer it is
        for key, value in keys.items()
        if isinstance(case.keys.get(key), list) and not isinstance(value, list)
    }
    keys = {**case.keys, **keys, **one_each}
    shapes = _by_keys(case, keys)
    table = {name: np.arange(shape[1]) for name, shape in shapes.items() if name.endswith(_EXPERTS_BY_TOKEN)}
    return replace(case, keys=keys, shapes={**case.shapes, **shapes}, given={**case.given, **table}), n_vocab


def _by_keys(case: Case, keys: Mapping[str, Any]) -> dict[str, Shape]:
    """The shapes of tensors that a definition compares with the keys before it asks for others."""
    found: dict[str, Shape] = {}
    for name, (rows, *rest) in case.shapes.items():
        if name.endswith(_EXPERTS_BY_TOKEN):
            found[name] = (rows, keys["expert_used_count"])
        elif name == "per_layer_token_embd.weight" and "ple.head_offsets" in keys:
            found[name] = (int(keys["ple.head_offsets"][-1] + keys["ple.head_vocab_sizes"][-1]), *rest)
        elif name.endswith("compressor_ape.weight"):
            block = keys["attention.compress_ratios"][int(name.split(".")[1])]
            width = keys["attention.indexer.key_length" if "indexer" in name else "attention.key_length"]
            found[name] = (block, 2 * width if block == rows == 4 else width)
        elif name.endswith("ple_conv1d.weight"):
            found[name] = (keys["hyper_connection.count"] * keys["embedding_length"], *rest)
        elif name.endswith((".ssm_a", ".ssm_d")) and rows == case.keys.get("ssm.inner_size"):
            found[name] = (keys["ssm.inner_size"], *([keys["ssm.state_size"]] * len(rest)))
    return found


def write(path: Path, name: str, mix: str) -> int:
    """Write the model; returns the file's size. Raises `ZincError` for widths that the architecture refuses."""
    case, n_vocab = grown(name)
    rng = np.random.default_rng(0)
    writer = GGUFWriter(path)
    keys = {f"{case.architecture}.{key}": value for key, value in case.keys.items()} | case.bare
    first = {"general.architecture": case.architecture, "general.file_type": MIXES[mix].file_type}
    for key, value in (first | keys | text_keys(n_vocab)).items():
        writer.add(key, value, ValueType.UINT32 if type(value) is int else None)
    pools: dict[GGMLType, Any] = {}
    integers = {tensor: shape for tensor, shape in case.shapes.items() if tensor.endswith(_EXPERTS_BY_TOKEN)}
    for tensor, small in {**shapes_of(case), **integers}.items():
        shape = (n_vocab, *small[1:]) if tensor in _BY_TOKEN or tensor.endswith(_EXPERTS_BY_TOKEN) else small
        if tensor.endswith(_EXPERTS_BY_TOKEN):
            chosen = rng.permuted(np.tile(np.arange(case.keys["expert_count"], dtype=np.int32), (n_vocab, 1)), axis=1)
            writer.add_tensor(tensor, np.ascontiguousarray(chosen[:, : shape[1]]), GGMLType.I32, shape)
            continue
        kind = _format_of(tensor, shape, mix, case)
        if kind is GGMLType.F32:
            writer.add_tensor(tensor, made_up(tensor, shape, rng), kind, shape)
            continue
        if kind not in pools:
            pools[kind] = pool(kind, rng)
        n_bytes = math.prod(shape[:-1]) * kind.row_bytes(shape[-1])
        writer.add_tensor(tensor, np.resize(pools[kind], n_bytes), kind, shape)
    return writer.write()


def _format_of(name: str, shape: Shape, mix: str, case: Case) -> GGMLType:
    """The format of a tensor: what is small stays F32."""
    if len(shape) < 2 or not name.endswith(".weight") or math.prod(shape) < 1 << 16 or "conv" in name:
        return GGMLType.F32
    layer = int(name.split(".")[1]) if name.startswith("blk.") else -1
    role = name.removesuffix(".weight").removeprefix(f"blk.{layer}.")
    head = name in ("output.weight", "token_embd.weight")
    kind = MIXES[mix].format_of(role, layer, int(case.keys["block_count"]), head)
    return kind if shape[-1] % kind.block_size == 0 else GGMLType.Q8_0 if shape[-1] % 32 == 0 else GGMLType.F32


def main() -> None:
    """Write the models that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(WIDTHS)}; none: all")
    parser.add_argument("--mix", default="q4_k_m", choices=MIXES)
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in WIDTHS]
    if unknown:
        parser.error(f"no widths for {', '.join(unknown)}; there are those of {', '.join(WIDTHS)}")
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.names or WIDTHS:
        written = write(args.folder / f"{name}-{args.mix}.gguf", name, args.mix)
        print(f"{name}-{args.mix}.gguf: {written / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
