"""How a model is loaded: three records, their fields by name, and what does not go together."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Iterable
from typing import Any

import pytest

import zinc_rt
from zinc_rt.engine.options import CacheOptions, DeviceOptions, Options
from zinc_rt.errors import UsageError
from zinc_rt.llm.chat import ChatFormat
from zinc_rt.llm.input_processor import ChatFields
from zinc_rt.llm.load import LoadOptions
from zinc_rt.sampling.params import SamplingOverrides, SamplingParams
from zinc_rt.speculation import DraftOptions

RECORDS = {"where": DeviceOptions, "cache": CacheOptions, "drafts": DraftOptions}
WIDER: dict[str, Any] = {"stop": str | Iterable[str], "stop_token_ids": Iterable[int]}


_NO_RECORD = {
    "embeddings", "pooling", "mmproj", "lora", "lora_slots", "max_lora_rank", "notify", "planned", "progress", "tier",
}  # fmt: skip
"""Arguments of `load` that stand in none of its records."""


def test_names_of_load_are_the_fields_of_its_records() -> None:
    hints = typing.get_type_hints(LoadOptions)
    own = hints.keys() - _NO_RECORD - RECORDS.keys()
    fields = {name: kind for record in RECORDS.values() for name, kind in typing.get_type_hints(record).items()}
    assert sum(len(dataclasses.fields(record)) for record in RECORDS.values()) == len(fields)
    assert {name: hints[name] for name in own} == {name: kind | None for name, kind in fields.items()}


def test_overrides_are_the_fields_of_the_parameters() -> None:
    fields = typing.get_type_hints(SamplingParams)
    given = typing.get_type_hints(SamplingOverrides)
    assert list(given) == [f.name for f in dataclasses.fields(SamplingParams)]
    assert given == {name: WIDER.get(name, fields[name]) for name in given}


@pytest.mark.parametrize(
    ("record", "given", "said"),
    [
        (DeviceOptions, {"kernels": "reference", "isa": "avx2"}, "isa is 'avx2', but the reference kernels"),
        (DeviceOptions, {"device": "tpu"}, "unknown device 'tpu'"),
        (CacheOptions, {"kv_tokens": 64, "kv_memory": 1 << 20}, "give one of them"),
        (CacheOptions, {"kv": "q4_0"}, "kv is 'q4_0', it must be f16 or q8_0"),
        (Options, {"tier": "t_cpu", "device": "emu"}, "give device only"),
        (Options, {"device": "gpu@03:00.0", "card": "renderD129"}, "name one card"),
        (Options, {"kv_tokens": 64, "kv_memory": 1 << 20}, "give one of them"),
        (Options, {"n_slots": None}, "n_slots is None"),
    ],
    ids=str,
)
def test_options_that_do_not_go_together(record: type, given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        record(**given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"where": DeviceOptions(isa="avx2"), "kernels": "reference"}, "isa is 'avx2', but the reference kernels"),
        ({"where": DeviceOptions("emu"), "tier": "t_cpu"}, "device is 'emu' and tier is 't_cpu'"),
        ({"cache": CacheOptions(kv_tokens=64), "kv_memory": 1 << 20}, "give one of them"),
        ({"drafts": DraftOptions("ngram"), "draft_model": "m.gguf"}, "a draft model is given"),
        ({"cache": DeviceOptions()}, "cache is DeviceOptions.*must be a CacheOptions"),
        ({"n_contex": 64}, "load has no n_contex; known: .*n_ctx"),
    ],
    ids=str,
)
def test_what_load_refuses(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        zinc_rt.load(**given)


def test_records_and_names_of_load_are_the_same() -> None:
    cache = CacheOptions(n_ctx=128, n_slots=2)
    with zinc_rt.load(where=DeviceOptions("cpu", kernels="reference"), cache=cache, kv="q8_0", n_ctx=None) as model:
        options = model.engine.options
    named = zinc_rt.load(device="cpu", kernels="reference", n_ctx=128, n_slots=2, kv="q8_0")
    named.close()
    assert options == named.engine.options
    assert (options.n_ctx, options.n_slots, options.kernels, options.kv) == (128, 2, "reference", "q8_0")


def test_fields_of_chats_are_those_of_a_request() -> None:
    taken = inspect.signature(ChatFormat.prompt).parameters.values()
    names = [p.name for p in taken if p.kind is p.KEYWORD_ONLY]
    assert list(ChatFields.__annotations__) == [name for name in names if name not in ("ending", "check")]  # a server's
