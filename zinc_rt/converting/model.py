"""A folder's model as what `quantizing` writes a file from."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from zinc_rt.converting.config import Config
from zinc_rt.converting.encoder_keys import encoder_keys, pooling_keys
from zinc_rt.converting.errors import ConvertError
from zinc_rt.converting.families import Family, family_of
from zinc_rt.converting.folder import ModelFolder
from zinc_rt.converting.keys import decoder_keys, heads_of
from zinc_rt.converting.made import Made, held
from zinc_rt.converting.packed import block_of, packed
from zinc_rt.converting.rules import place
from zinc_rt.converting.safetensors import FLOATS, Stored
from zinc_rt.converting.text.check import check_texts
from zinc_rt.converting.text.special import special_keys
from zinc_rt.converting.text.vocabulary import vocabulary_keys
from zinc_rt.gguf import GGUFFile, ValueType
from zinc_rt.gguf.dequantize import dequantize
from zinc_rt.gguf.encode import encode_value, infer_type
from zinc_rt.gguf.part import DEFAULT_ALIGNMENT
from zinc_rt.gguf.tensors import TensorInfo
from zinc_rt.models import define
from zinc_rt.models.errors import ModelError
from zinc_rt.text.vocab import KEY
from zinc_rt.utils.checks import show
from zinc_rt.utils.closing import Closing

U8 = NDArray[np.uint8]
U64 = NDArray[np.uint64]
_HEAD: Final = "output.weight"
_BASES: Final = ("base", "pt", "pretrained")
"""How names of models end that nobody tuned to answer, though they have a chat template."""


class NewMetadata(Mapping[str, Any]):
    """Values by key. A whole number is stored in 32 bits without a sign, another one as float32."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def stored(self, key: str) -> bytes:
        """The bytes of a value with its type. Raises GGUFError for what the format does not hold."""
        value = self._values[key]
        return encode_value(value, ValueType.UINT32 if type(value) is int else infer_type(value))


class ConvertedModel(Closing):
    """The model of a folder, as a `quantizing` source. A context manager.

    Attributes:
        path: of the folder.
        metadata, tensors: of the new file, but for its format.
        notes: what the user should know, a line each.
    """

    alignment: Final = DEFAULT_ALIGNMENT

    def __init__(self, folder: Path) -> None:
        """Open and check a folder; nothing but the directories of its tensors is read yet, and its tokenizer.

        Raises `ConvertError`, FileAccessError, TokenizerError.
        """
        self._folder = ModelFolder(folder)
        try:
            self.path, self.notes = self._folder.shown, list[str]()
            family, config = family_of(self._folder)
            self._made, keys = self._tensors(family, config)
            self.tensors: Mapping[str, TensorInfo] = {name: made.info for name, made in self._made.items()}
            self.metadata = NewMetadata(self._metadata(family, keys))
            self._check()
        except BaseException:
            self._folder.close()
            raise

    @property
    def paths(self) -> tuple[str, ...]:
        """The files with the weights."""
        return self._folder.paths

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors that are read."""
        return sum(tensor.end - tensor.begin for tensor in self._folder.tensors.values())

    @property
    def usual_type(self) -> str:
        """The format that most of the weights are in: F32, F16 or BF16."""
        sizes: Counter[str] = Counter()
        for tensor in self._folder.tensors.values():
            sizes[tensor.dtype] += math.prod(tensor.shape)
        return next((name for name, _ in sizes.most_common() if name in FLOATS), "F32")

    def _tensors(self, family: Family, config: Config) -> tuple[dict[str, Made], dict[str, Any]]:
        try:
            sizes = encoder_keys if family.encodes else decoder_keys
            keys, factors = sizes(config, acts=family.acts, truncated=family.truncated)
            keys |= family.keys(config) | (pooling_keys(self._folder, config) if family.encodes else {})
            factors |= family.made(config)
        except (ArithmeticError, ValueError) as error:  # of numbers that are fine each, as an interval of 0
            raise ConvertError(f"{self._folder.shown}/config.json has numbers that make no model: {error}") from error
        scalars, lists = _scalars(self._folder.tensors, family.scalars, config.integer("num_hidden_layers"))
        whole, found = _whole_numbers(self._folder.tensors, family.numbers)
        scalars, keys = scalars | whole, keys | found
        tied = config.get("tie_word_embeddings")
        made, aside = place(
            packed(
                {name: tensor for name, tensor in self._folder.tensors.items() if name not in scalars},
                block_of(config),
            ),
            family.rules,
            heads_of(config),
            skipped=(*family.skipped, *_drafting(config)),
            tied=tied is True or family.tied,
        )
        every = {one.info.name: one for one in made}
        if len(every) < len(made):
            twice = next(name for name, n in Counter(one.info.name for one in made).items() if n > 1)
            raise ConvertError(f"{self._folder.shown}: two tensors would become {show(twice)}")
        if tied is False and _HEAD not in every:
            raise ConvertError(
                f"{self._folder.shown} has no lm_head.weight, and config.json says that the head is not the embedding"
            )
        every |= {name: held(name, values) for name, values in factors.items()}
        parts = sorted({name.split(".")[0] for name in aside if "lm_head" not in name})
        if parts:
            self.notes.append(f"left aside: {', '.join(parts)}; the text model is converted")
        return every, {f"{family.name}.{key}": value for key, value in keys.items() if value is not None} | lists

    def _metadata(self, family: Family, keys: Mapping[str, Any]) -> dict[str, Any]:
        embedding = self.tensors.get("token_embd.weight")
        if embedding is None:
            raise ConvertError(f"{self._folder.shown} has no embed_tokens.weight")
        n_rows = embedding.shape[0]
        said = keys[f"{family.name}.vocab_size"]
        if said != n_rows:
            raise ConvertError(f"config.json has vocab_size = {said}, embed_tokens has {n_rows} rows")
        vocabulary = vocabulary_keys(self._folder, n_rows)
        special, notes = special_keys(self._folder, vocabulary, encodes=family.encodes)
        self.notes += notes
        text = self._folder.text("tokenizer.json")
        if text is not None:
            check_texts(vocabulary | special, text)
        general: dict[str, Any] = {"general.architecture": family.name, "general.type": "model"}
        general["general.name"] = name = self._name(family, vocabulary)
        last = name.rpartition("-")[2]
        if last.lower() in _BASES:
            general["general.finetune"] = last
        return general | dict(keys) | vocabulary | special

    def _name(self, family: Family, vocabulary: Mapping[str, Any]) -> str:
        """The folder's name, in the hub's cache the model's.

        With a vocabulary of SentencePiece it has the family's part, by which readers know what its marks do.
        """
        path = self._folder.path.resolve()
        name = path.parent.parent.name.split("--")[-1] if path.parent.name == "snapshots" else path.name
        part = family.name_part if f"{KEY}scores" in vocabulary else ""
        return name if part.lower() in name.lower() else f"{part} {name}"

    def _check(self) -> None:
        """Build the definition that `load` builds, so that what is written runs. Raises `ConvertError`."""
        try:
            define(cast("GGUFFile", self))
        except ModelError as error:
            raise ConvertError(f"{self._folder.shown} is a variant that does not run here: {error}") from error

    def raw(self, name: str) -> U8:
        """All rows of a tensor; for small ones."""
        return self.rows(name, 0, self.tensors[name].n_rows)

    def rows(self, name: str, start: int, stop: int) -> U8:
        """Rows of a tensor in the bytes of its type: uint8[stop - start, row_bytes]. Raises FileChanged."""
        return self._made[name].rows(start, stop)

    def release(self, name: str) -> None:
        """Free the memory behind a tensor's bytes."""
        self._made[name].release()

    def check_unwritten(self) -> None:
        """Raise FileChanged when a file was written to since it was opened."""
        self._folder.check_unwritten()

    def close(self) -> None:
        """Release the files."""
        self._folder.close()


def _drafting(config: Config) -> list[str]:
    """How names of blocks that draft tokens begin: they stand behind the others."""
    n = config.integer("num_hidden_layers")
    return [f"layers.{n + i}." for i in range(min(config.integer("num_nextn_predict_layers", 0), 64))]


def _scalars(
    tensors: Mapping[str, Stored], wanted: Mapping[str, str], n_layers: int
) -> tuple[set[str], dict[str, list[float]]]:
    """Numbers of layers that are stored as tensors: these tensors' names, and a list of n_layers for each key.

    wanted: the key by the end of the name. Raises `ConvertError`.
    """
    names, lists = set[str](), dict[str, list[float]]()
    for end, key in wanted.items():
        found = {name: tensor for name, tensor in tensors.items() if name.endswith(f".{end}")}
        values = {}
        for name, tensor in found.items():
            layer = re.search(r"layers\.(\d+)\.", name)
            if layer is None or math.prod(tensor.shape) != 1 or tensor.dtype not in FLOATS:
                raise ConvertError(f"tensor {show(name)} is no number of a layer")
            values[int(layer[1])] = float(dequantize(FLOATS[tensor.dtype], tensor.flat().reshape(1, -1))[0, 0])
        if sorted(values) != list(range(n_layers)):
            raise ConvertError(f"{len(values)} of {n_layers} layers have a tensor {show(end)}, which all need")
        names |= found.keys()
        lists[key] = [values[layer] for layer in range(n_layers)]
    return names, lists


def _whole_numbers(tensors: Mapping[str, Stored], wanted: Mapping[str, str]) -> tuple[set[str], dict[str, U64]]:
    """Lists of whole numbers that are stored as tensors: these tensors' names, and u64[n] for each key.

    wanted: the key by the end of the name. Raises `ConvertError`.
    """
    names, lists = set[str](), dict[str, U64]()
    for name, tensor in tensors.items():
        key = next((key for end, key in wanted.items() if name.endswith(f".{end}")), None)
        if key is None:
            continue
        if tensor.dtype not in ("I64", "U64"):
            raise ConvertError(f"tensor {show(name)} is stored as {tensor.dtype}; whole numbers of 64 bits are needed")
        names.add(name)
        lists[key] = tensor.flat().view("<u8").astype(np.uint64)
    return names, lists
