"""What is no folder of a model that is converted: one line that names it, before anything is written."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.converting import folders
from zinc_rt.converting.errors import ConvertError
from zinc_rt.converting.model import ConvertedModel
from zinc_rt.converting.safetensors import _object, open_safetensors
from zinc_rt.errors import ZincError

Change = Callable[[Path], None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folders.write_folder(tmp_path / "m", "qwen3")
    return tmp_path / "m"


def setting(file: str = "config.json", **values: Any) -> Change:
    """Values of a JSON file; None removes one."""

    def change(folder: Path) -> None:
        old = json.loads((folder / file).read_text()) if (folder / file).exists() else {}
        new = {key: value for key, value in (old | values).items() if value is not None}
        (folder / file).write_text(json.dumps(new))

    return change


def tokenizer(*path: str, to: Any) -> Change:
    """A value within tokenizer.json."""

    def change(folder: Path) -> None:
        parsed = json.loads((folder / "tokenizer.json").read_text())
        at = parsed
        for name in path[:-1]:
            at = at[name]
        at[path[-1]] = to
        (folder / "tokenizer.json").write_text(json.dumps(parsed))

    return change


def tensors(change_them: Callable[[dict[str, Any]], Any]) -> Change:
    """Other tensors in model.safetensors."""

    def change(folder: Path) -> None:
        _, stored = open_safetensors(folder / "model.safetensors")
        made = {name: (t.dtype, t.shape, t.flat().tobytes()) for name, t in stored.items()}
        change_them(made)
        folders.write_safetensors(folder / "model.safetensors", made)

    return change


def gone(*names: str) -> Change:
    def change(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return change


def one_more(name: str, dtype: str = "F32", size: int = 16) -> Change:
    return tensors(lambda made: made.update({name: (dtype, (4,), bytes(size))}))


Q = "model.layers.0.self_attn.q_proj.weight"
REFUSED: tuple[tuple[Change, type[ZincError], str], ...] = (
    (gone("config.json"), ConvertError, "has no config.json"),
    (gone("model.safetensors"), ConvertError, r"has no \*\.safetensors"),
    (lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"), ConvertError, "as pickles"),
    (gone("tokenizer.json"), ConvertError, "has no tokenizer.json and no tokenizer.model"),
    (lambda f: (f / "config.json").write_text("{"), ConvertError, "config.json is no JSON"),
    (lambda f: (f / "config.json").write_text("[]"), ConvertError, "is no JSON object"),
    (setting(architectures=["BloomForCausalLM"]), ConvertError, "'BloomForCausalLM', .* converted are LlamaFor"),
    (setting(architectures=None), ConvertError, "names the architecture 'None'"),
    (setting(quantization_config={"quant_method": "gptq"}), ConvertError, "quantised already .'gptq'."),
    (setting(quantization_config={"weight_block_size": [0, 1]}), ConvertError, r"weight_block_size = '\[0, 1\]'"),
    (setting(hidden_act="gelu"), ConvertError, "hidden_act = 'gelu', .* 'silu' would be"),
    (setting(use_sliding_window=True), ConvertError, "use_sliding_window = 'True'"),
    (setting(rope_scaling={"rope_type": "odd", "factor": 2.0}), ConvertError, "rotation of type 'odd'"),
    (setting(rope_scaling={"rope_type": "yarn", "factor": 2.0, "truncate": False}), ConvertError, "truncate"),
    (setting(rope_scaling=-1), ConvertError, "rope_scaling is '-1', an object is needed"),
    (setting(rope_parameters=[1]), ConvertError, "rope_parameters is '.1.', an object is needed"),
    (setting(rope_theta=10**400), ConvertError, "rope_theta is '1000.*', a number is needed"),
    (setting(rms_norm_eps=1e300), ConvertError, "rms_norm_eps is '1e.300', a number is needed"),
    (setting(rope_scaling={"rope_type": "longrope", "original_max_position_embeddings": 1}), ConvertError, "no model"),
    (setting(partial_rotary_factor=1e30), ConvertError, "partial_rotary_factor = 1e.30, a share"),
    (setting(num_hidden_layers=4_000_000_000), ConvertError, "4000000000 layers"),
    (setting(hidden_size=None), ConvertError, "has no hidden_size"),
    (setting(hidden_size="64"), ConvertError, "hidden_size is '64', an integer is needed"),
    (setting(rms_norm_eps=True), ConvertError, "rms_norm_eps is 'True', a number is needed"),
    (setting(num_attention_heads=0), ConvertError, "0 heads"),
    (setting(vocab_size=400), ConvertError, "vocab_size = 400, embed_tokens has 320 rows"),
    (setting(num_hidden_layers=3), ConvertError, "blk.2.attn_norm.weight"),
    (setting(num_hidden_layers=1), ConvertError, "does not use here, the first blk.1"),
    (setting(num_attention_heads=4), ConvertError, "blk.0.attn_q.weight"),
    (tensors(lambda made: made.pop("lm_head.weight")), ConvertError, "no lm_head.weight"),
    (tensors(lambda made: made.pop(Q)), ConvertError, "blk.0.attn_q.weight"),
    (tensors(lambda made: made.update({Q: ("F8_E4M3", (4, 4), bytes(16))})), ConvertError, "stored as F8_E4M3"),
    (
        tensors(
            lambda made: made.update({Q: ("F8_E4M3", (6, 4), bytes(24)), f"{Q}_scale_inv": ("F32", (5, 1), bytes(20))})
        ),
        ConvertError,
        "no scales that fit it",
    ),
    (one_more("model.layers.0.self_attn.rotary_emb.weight"), ConvertError, "none that models of this arch"),
    (one_more("model.layers.0.mlp.experts.3.up_proj.weight"), ConvertError, "none that models of this arch"),
    (one_more("model.layers.0.self_attn.q_proj.scales"), ConvertError, "q_proj.scales"),
    (setting("model.safetensors.index.json", weight_map={"a": "../b.safetensors"}), ConvertError, "outside of"),
    (setting("model.safetensors.index.json", weight_map={"a": "b.safetensors"}), ConvertError, "lacks b.safetensors"),
    (setting("model.safetensors.index.json", weight_map={"a": "model.safetensors"}), ConvertError, "no file has"),
    (setting("model.safetensors.index.json", weight_map=[]), ConvertError, "has no weight_map"),
    (tokenizer("model", "type", to="WordLevel"), ConvertError, "model of type 'WordLevel'"),
    (tokenizer("model", "type", to="Unigram"), ConvertError, "without a vocab of texts and scores"),
    (tokenizer("model", "type", to="WordPiece"), ConvertError, "prepares text by"),
    (tokenizer("model", "ignore_merges", to=True), ConvertError, "words that are tokens stay whole"),
    (tokenizer("model", "merges", to=[["a"]]), ConvertError, "no pair of texts"),
    (tokenizer("model", "end_of_word_suffix", to="</w>"), ConvertError, "end_of_word_suffix"),
    (tokenizer("model", "vocab", to=[1]), ConvertError, "without a vocab"),
    (tokenizer("normalizer", to={"type": "Lowercase"}), ConvertError, "changes text before it cuts it"),
    (tokenizer("pre_tokenizer", "pretokenizers", to=[{"type": "Whitespace"}]), ConvertError, "of type 'BPE'"),
    (tokenizer("added_tokens", to=[{"id": 1}]), ConvertError, "without id or text"),
    (tokenizer("added_tokens", to=[{"id": 1.5, "content": "a"}]), ConvertError, "without id or text"),
    (tokenizer("added_tokens", to=1.5), ConvertError, "added_tokens that are no list"),
    (tokenizer("model", "merges", to=1.5), ConvertError, "merges that are no list"),
    (tokenizer("post_processor", to={"type": "Odd"}), ConvertError, "is not read by the tokenizers library"),
    (setting(linear_num_value_heads=0, linear_num_key_heads=2), ConvertError, "0 value heads of delta nets"),
    (setting("tokenizer_config.json", add_bos_token=True, bos_token=None), ConvertError, "no bos token is known"),
)


@pytest.mark.parametrize(("change", "kind", "words"), REFUSED)
def test_folders(change: Change, kind: type[ZincError], words: str, folder: Path) -> None:
    change(folder)
    with pytest.raises(ConvertError, match=words) as caught:
        ConvertedModel(folder)
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)


def test_a_name_twice_is_found_in_one_pass() -> None:
    compared = 0

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    pairs: list[tuple[str, Any]] = [(Name(f"t{i}"), 0) for i in range(500)]
    with pytest.raises(ConvertError, match="the name 't499' twice"):
        _object([*pairs, (Name("t499"), 0)], "m.safetensors")
    assert compared < 10 * len(pairs)


@pytest.mark.parametrize(
    ("shape", "words"),
    [((1 << 40,) * 20_000, "20000 dimensions, at most 64"), ((1 << 61,) * 60, "takes .* bytes as F32, and has 16")],
    ids=["many dimensions", "large dimensions"],
)
def test_shapes_of_no_tensor(shape: tuple[int, ...], words: str, tmp_path: Path) -> None:
    folders.write_safetensors(tmp_path / "m.safetensors", {"a": ("F32", shape, bytes(16))})
    with pytest.raises(ConvertError, match=words) as caught:
        open_safetensors(tmp_path / "m.safetensors")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("scales", [None, ("U8", (8, 64, 2), bytes(1024)), ("I8", (8, 64, 1), bytes(512))])
def test_blocks_without_their_scales(scales: Any, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folders.write_folder(folder, "gpt-oss")
    name = "model.layers.0.mlp.experts.down_proj_scales"
    tensors(lambda made: made.pop(name) if scales is None else made.update({name: scales}))(folder)
    with pytest.raises(ConvertError, match=r"mlp\.experts\.down_proj_blocks' has no scales that fit it"):
        ConvertedModel(folder)


def test_what_is_no_folder(folder: Path) -> None:
    for path, words in ((folder / "none", "is not there"), (folder / "config.json", "is no folder")):
        with pytest.raises(ConvertError, match=words):
            ConvertedModel(path)


def test_a_file_that_changes_meanwhile(folder: Path) -> None:
    with ConvertedModel(folder) as model:
        model.check_unwritten()
        with (folder / "model.safetensors").open("r+b") as file:
            file.truncate(100)
        with pytest.raises(ZincError, match=r"was \d+ bytes long when opened and is now 100"):
            model.check_unwritten()


# ---------------------------------------------------------------- safetensors


def written(path: Path, header: Any, data: int, length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + bytes(data))
    return path


def entry(begin: int, end: int, dtype: Any = "F32", shape: Any = (2,)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("header", "data", "words"),
    [
        ({"a": entry(0, 8), "b": entry(4, 12)}, 12, "'b' overlaps the one before it"),
        ({"a": entry(0, 8), "b": entry(12, 20)}, 20, "'b' leaves bytes before it to no tensor"),
        ({"a": entry(0, 8)}, 9, "its tensors end at byte"),
        ({"a": entry(0, 8)}, 7, "ends at byte .* but tensor 'a' at"),
        ({"a": entry(0, 8, shape=(3,))}, 8, r"of shape \(3,\) takes 12 bytes as F32, and has 8"),
        ({"a": entry(0, 8, "F4")}, 8, "of type F4, which is not known"),
        ({"a": entry(0, 8, 7)}, 8, "of type 7"),
        ({"a": entry(0, 8, shape=(-2,))}, 8, "the shape"),
        ({"a": entry(0, 8, shape=(True, 2))}, 8, "the shape"),
        ({"a": entry(0, 8, shape="2")}, 8, "the shape"),
        ({"a": entry(8, 0)}, 8, "the offsets"),
        ({"a": 3}, 0, "has no dtype"),
        ([], 0, "no JSON object"),
        (b"{", 0, "no JSON"),
        (b"[" * 100_000, 0, "no JSON"),
        (b'{"a": 1, "a": 2}', 0, "the name 'a' twice"),
    ],
)
def test_damaged_files(header: Any, data: int, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match=words):
        open_safetensors(written(tmp_path / "m.safetensors", header, data))


def test_lengths_of_the_directory(tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match="announces a directory of 99 bytes"):
        open_safetensors(written(tmp_path / "m.safetensors", {}, 0, length=99))
    (tmp_path / "short").write_bytes(b"1234")
    with pytest.raises(ConvertError, match="has 4 bytes"):
        open_safetensors(tmp_path / "short")


def test_a_file_as_it_should_be(tmp_path: Path) -> None:
    header = {
        "__metadata__": {"x": "y"},
        "b": entry(8, 16),
        "a": entry(0, 8, "BF16", (2, 2)),
        "none": entry(16, 16, "I8", (0,)),
    }
    _, found = open_safetensors(written(tmp_path / "m.safetensors", header, 16))
    assert {name: (t.dtype, t.shape, t.end - t.begin) for name, t in found.items()} == {
        "a": ("BF16", (2, 2), 8),
        "b": ("F32", (2,), 8),
        "none": ("I8", (0,), 0),
    }
    assert np.array_equal(found["a"].flat(), np.zeros(8, np.uint8))
