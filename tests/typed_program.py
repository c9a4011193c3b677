"""A user's program as `mypy --strict` sees it; `test_typed_program` compares the errors with the comments `# error`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import zinc_rt
from zinc_rt import CacheOptions, DeviceOptions, DraftOptions, SamplingParams


@dataclass
class Pet:
    name: str


def weather(city: str) -> str:
    """The weather of a city."""
    return city


def right(prompts: Iterator[str]) -> npt.NDArray[np.float32]:
    params = SamplingParams(temperature=0, stop=["."], stop_token_ids=[2], logit_bias={3: 1.0})
    with zinc_rt.load("m.gguf", where=DeviceOptions("cpu"), cache=CacheOptions(n_ctx=64), kv="q8_0") as model:
        text: zinc_rt.Generation = model.generate("Once", params, seed=3, stop="\n")
        texts: list[zinc_rt.Generation] = model.generate(["Once", "Twice"], [params, params], progress=True)
        for number, one in model.generate_each(prompts, max_tokens=None, progress=print):
            print(number + 1, one.text, text, texts)
        for chunk in model.stream([1, 2], logprobs=2):
            print(chunk.text)
        answer = model.chat("Hello", response_format=Pet, tools=[weather], temperature=0.5)
        pet: Pet = answer.parsed
        print(pet, zinc_rt.generate("Once", seed=1))
        return model.embed("a")


async def right_in_tasks(drafts: DraftOptions) -> None:
    async with await zinc_rt.AsyncModel.load(drafts=drafts, threads=2) as model:
        print(await model.generate("Once", top_k=3), await model.chat("Hello", response_format=Pet, seed=1))
        async for number, text in model.generate_each(["Once"], seed=1):
            print(number, text.text)


def wrong(model: zinc_rt.Model) -> None:
    model.generate("Once", temprature=1)  # error
    model.generate("Once", temperature="hot")  # error
    model.stream("Once", max_token=3)  # error
    model.chat("Hello", temprature=1)  # error
    model.chat_stream("Hello", tool=[weather])  # error
    model.generate_each(["Once"], seed="1")  # error
    SamplingParams(temprature=1)  # error
    zinc_rt.load(n_context=64)  # error
    zinc_rt.load(n_ctx="64")  # error
    zinc_rt.load(where=CacheOptions())  # error
    zinc_rt.generate("Once", temprature=1)  # error


async def wrong_in_tasks(model: zinc_rt.AsyncModel) -> None:
    await model.generate("Once", temprature=1)  # error
    await model.chat("Hello", temprature=1)  # error
    await zinc_rt.AsyncModel.load(n_context=64)  # error
    model.stream("Once", temprature=1)  # error
