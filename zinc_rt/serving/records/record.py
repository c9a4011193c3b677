"""`RequestRecord`: everything that a finished request's tokens depend on, and the tokens."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import math
import zlib
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from zinc_rt import numerics
from zinc_rt.engine.pictures import MAX_PICTURE_ROWS, PlacedPicture
from zinc_rt.errors import ZincError
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.scheduler.messages import FinishReason, Grammar, QoS, Submit
from zinc_rt.serving.records.canonical import canonical, tensor_digest
from zinc_rt.serving.records.receipt import bytes_tensor, make_receipt
from zinc_rt.utils.checks import show
from zinc_rt.vision.shown import PixelTile, ShownPicture

COMPUTATION = "zinc-rt.generate"
COMPUTATION_VERSION = "1"
MAX_PICTURE_BYTES: Final = 32 << 20
"""Pixels of a record's pictures."""


class BadRecord(ZincError):
    """A stored record cannot be read."""


@dataclass(frozen=True)
class ModelIdentity:
    """Which model made the tokens, and how its bits were kept. sha256: of the file's bytes, hex, of all parts in order;
    kv: format of the KV cache; projector: SHA-256 of the file that makes rows of pictures, empty for none.
    """

    name: str
    sha256: str
    kv: str = "f16"
    projector: str = ""


@dataclass(frozen=True)
class RecordedAdapter:
    """An adapter that an answer has. name: the server's for it. sha256: of its file's bytes, hex. scale: of what it
    adds.
    """

    name: str
    sha256: str
    scale: float


@dataclass(frozen=True)
class RequestRecord:
    """A finished request.

    created: seconds since 1970. prompt: token ids as they were computed; templates may ask for the time, so messages
    would not do. given: first tokens of the answer that the client said were generated elsewhere; output: the tokens
    generated behind them, without the stop token. numerics: `zinc_rt.numerics.VERSION`. pictures: as the tower
    saw them. prefill: how many tokens at the prompt's end are of an answer that the client began itself. logprobs: of
    the tokens of `output`, where the request asked for them. text_sha256: of the answer's content, hex; empty where it
    is not known. adapters: in the order in which what they add is summed.
    """

    id: str
    created: float
    tenant: str
    endpoint: str
    model: ModelIdentity
    prompt: tuple[int, ...]
    params: SamplingParams
    seed: int
    output: tuple[int, ...]
    finish_reason: str
    grammar: Grammar | None = None
    numerics: int = numerics.VERSION
    given: tuple[int, ...] = ()
    pictures: tuple[ShownPicture, ...] = ()
    prefill: int = 0
    logprobs: tuple[float, ...] = ()
    text_sha256: str = ""
    adapters: tuple[RecordedAdapter, ...] = ()

    @property
    def picture_bytes(self) -> int:
        """Bytes of the pictures' pixels."""
        return sum(shown.n_bytes for shown in self.pictures)

    @property
    def least_context(self) -> int:
        """Positions that prompt and answer take."""
        return len(self.prompt) + len(self.given) + len(self.output) + 1

    def submit(self, request_id: str) -> Submit:
        """The same request again, of another id."""
        return Submit(
            request_id,
            self.prompt,
            self.params,
            self.seed,
            self.tenant,
            QoS.batch,
            b"",
            self.grammar,
            self.given,
            pictures=self.pictures,
            adapters=tuple((one.name, one.scale) for one in self.adapters),
        )

    def receipt(self) -> dict[str, Any]:
        """A computation receipt: digests of the model, prompt, parameters and output, no token of them. What the client
        gave of the answer is an input, beside the prompt. Beside the form's members it has `asserted`, how many tokens
        are the client's word, and `outputs`, digests of the text and of log-probabilities (float64).
        """
        model = {"gguf.sha256": bytes_tensor(bytes.fromhex(self.model.sha256))}
        if self.adapters:
            model["adapters"] = bytes_tensor(canonical(self._adapted()))
        inputs: dict[str, npt.NDArray[Any]] = {
            "prompt": np.array(self.prompt, np.int64 if self.pictures else np.int32),
            "seed": np.array([self.seed], np.uint64),
            "parameters": bytes_tensor(canonical(self._parameters())),
        }
        if self.grammar is not None:
            inputs["grammar"] = bytes_tensor(canonical(self._grammar()))
        if self.given:
            inputs["given"] = np.array(self.given, np.int32)
        if self.pictures:
            model["projector.sha256"] = bytes_tensor(bytes.fromhex(self.model.projector))
            inputs["pictures"] = bytes_tensor(canonical(self._shown()))
        named = {"adapters": [one.name for one in self.adapters]} if self.adapters else {}
        made = make_receipt(
            COMPUTATION,
            COMPUTATION_VERSION,
            model,
            inputs,
            np.array(self.output, np.int32),
            meta={"id": self.id, "created": int(self.created), "model": self.model.name} | named,
        )
        outputs = {"text": f"sha256:{self.text_sha256}"} if self.text_sha256 else {}
        if self.logprobs:
            outputs["logprobs"] = tensor_digest(np.array(self.logprobs, np.float64))
        return {**made, "asserted": {"given": len(self.given), "prefill": self.prefill}, "outputs": outputs}

    def opened_receipt(self) -> dict[str, Any]:
        """The receipt with what its digests are of (`opened`), which is all that a verifier needs beside the model."""
        opened: dict[str, Any] = {"prompt": list(self.prompt), "seed": self.seed, "parameters": self._parameters()}
        if self.grammar is not None:
            opened["grammar"] = self._grammar()
        if self.given:
            opened["given"] = list(self.given)
        if self.pictures:
            opened["pictures"] = self._shown()
        if self.adapters:
            opened["adapters"] = self._adapted()
        return self.receipt() | {"opened": opened | {"output": list(self.output)}}

    def _parameters(self) -> dict[str, Any]:
        return _params_to_json(self.params) | {"kv": self.model.kv}

    def _grammar(self) -> dict[str, Any]:
        assert self.grammar is not None
        return {"text": self.grammar.text, "after": list(self.grammar.after)}

    def _adapted(self) -> list[list[str]]:
        return [[one.sha256, _float_text(one.scale)] for one in self.adapters]

    def _shown(self) -> list[Any]:
        return [_digests(shown) for shown in self.pictures]

    def to_json(self) -> dict[str, Any]:
        """Plain data; `from_json` reads it. Floats are texts that give back every bit."""
        made = dataclasses.asdict(dataclasses.replace(self, pictures=()))
        made["pictures"] = [_picture_to_json(shown) for shown in self.pictures]
        made["created"] = self.created.hex()
        made["params"] = _params_to_json(self.params)
        made["logprobs"] = [_float_text(logprob) for logprob in self.logprobs]
        made["adapters"] = [{**one, "scale": _float_text(one["scale"])} for one in made["adapters"]]
        for name in ("prompt", "output", "given"):
            made[name] = list(made[name])
        return made

    @classmethod
    def from_json(cls, data: Any) -> RequestRecord:
        """Raises `BadRecord` for what `to_json` did not write."""
        try:
            stored = msgspec.convert(data, _Stored)
            created = float.fromhex(stored.created)
            if not math.isfinite(created) or not 0 <= stored.seed < 1 << 64 or len(stored.model.sha256) != 64:
                raise ValueError("created, seed or model.sha256 is outside of its range")
            bytes.fromhex(stored.model.sha256), bytes.fromhex(stored.model.projector)
            made = {name: getattr(stored, name) for name in _Stored.__struct_fields__}
            params = _params_from_json(stored.params)
            made |= {"created": created, "params": params, "finish_reason": stored.finish_reason.value}
            made["logprobs"] = tuple(map(float.fromhex, stored.logprobs))
            made["adapters"] = tuple(
                RecordedAdapter(one.name, one.sha256, float.fromhex(one.scale)) for one in stored.adapters
            )
            return cls(**made | {"pictures": _pictures_from_json(stored.pictures)})
        except (
            ArithmeticError,
            AttributeError,
            TypeError,
            ValueError,
            zlib.error,
            msgspec.MsgspecError,
            ZincError,
        ) as error:
            raise BadRecord(f"the record cannot be read: {show(str(error))}") from None


_Token = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
_PromptToken = Annotated[int, msgspec.Meta(ge=-(1 << 62), lt=1 << 31)]
"""Rows of pictures are below 0."""
_Side = Annotated[int, msgspec.Meta(ge=1, lt=1 << 16)]
_Rows = Annotated[int, msgspec.Meta(ge=0, le=MAX_PICTURE_ROWS)]


class _StoredTile(msgspec.Struct):
    """pixels: compressed by zlib."""

    width: _Side
    height: _Side
    pixels: bytes


class _StoredPicture(msgspec.Struct):
    """A picture as a record's JSON has it."""

    digest: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    n_rows: _Rows
    columns: _Rows
    lines: _Rows
    tiles: tuple[_StoredTile, ...]


_Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class _StoredAdapter(msgspec.Struct):
    """scale: hexadecimal."""

    name: str
    sha256: _Sha256
    scale: str


class _Stored(msgspec.Struct):
    """A record as its JSON has it."""

    id: str
    created: str
    tenant: str
    endpoint: str
    model: ModelIdentity
    prompt: tuple[_PromptToken, ...]
    params: dict[str, Any]
    seed: int
    output: tuple[_Token, ...]
    finish_reason: FinishReason
    grammar: Grammar | None
    numerics: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
    given: tuple[_Token, ...] = ()  # records of earlier releases have none, nor pictures
    pictures: tuple[_StoredPicture, ...] = ()
    prefill: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)] = 0
    logprobs: tuple[str, ...] = ()
    text_sha256: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")] = ""
    adapters: tuple[_StoredAdapter, ...] = ()


def _picture_to_json(shown: ShownPicture) -> dict[str, Any]:
    tiles = [
        {"width": tile.width, "height": tile.height, "pixels": base64.b64encode(zlib.compress(tile.pixels, 1)).decode()}
        for tile in shown.tiles
    ]
    placed = dataclasses.asdict(shown.placed)
    return {**placed, "digest": base64.b64encode(shown.placed.digest).decode(), "tiles": tiles}


def _pictures_from_json(stored: tuple[_StoredPicture, ...]) -> tuple[ShownPicture, ...]:
    """Raises `ValueError`, `zlib.error`."""
    left, found = MAX_PICTURE_BYTES, []
    for one in stored:
        tiles = []
        for tile in one.tiles:
            size = 3 * tile.width * tile.height
            left -= size
            if left < 0:
                raise ValueError(f"its pictures have more than {MAX_PICTURE_BYTES} bytes of pixels")
            reader = zlib.decompressobj()
            pixels = reader.decompress(tile.pixels, size + 1)
            if len(pixels) != size or not reader.eof:
                raise ValueError(f"a picture of {tile.width} x {tile.height} pixels has not as many")
            tiles.append(PixelTile(tile.width, tile.height, pixels))
        found.append(ShownPicture(PlacedPicture(one.digest, one.n_rows, one.columns, one.lines), tuple(tiles)))
    return tuple(found)


def _digests(shown: ShownPicture) -> list[Any]:
    """What a receipt says of a picture: which rows stand for it, and the size and SHA-256 of each tile's pixels."""
    tiles = [[tile.width, tile.height, hashlib.sha256(tile.pixels).hexdigest()] for tile in shown.tiles]
    return [shown.placed.digest.hex(), shown.placed.n_rows, tiles]


def _params_to_json(params: SamplingParams) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in dataclasses.fields(params):
        value = getattr(params, field.name)
        if isinstance(value, float):
            value = _float_text(value)
        elif field.name == "logit_bias":
            value = {str(token): _float_text(bias) for token, bias in sorted(value.items())}
        elif isinstance(value, tuple):
            value = list(value)
        elif isinstance(value, bool):
            value = int(value)
        found[field.name] = value
    return found


def _float_text(value: float) -> str:
    """float.hex, which gives back every bit; "inf" and "-inf" beside."""
    return value.hex() if math.isfinite(value) else str(value)


def _params_from_json(data: dict[str, Any]) -> SamplingParams:
    known = {field.name: field for field in dataclasses.fields(SamplingParams)}
    values: dict[str, Any] = {}
    for name, value in data.items():
        if name not in known:
            raise BadRecord(f"the record has a sampling parameter {name!r} that this release does not know")
        if name == "logit_bias":
            value = {int(token): float.fromhex(bias) for token, bias in value.items()}
        elif known[name].type == "float":
            value = float.fromhex(value)
        elif known[name].type == "bool":
            value = bool(value)
        elif isinstance(value, int) and value.bit_length() > 64:
            raise BadRecord(f"the record's {name} has more than 64 bits")
        values[name] = value
    return SamplingParams(**values)
