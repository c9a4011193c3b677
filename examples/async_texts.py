"""Several answers at once in one event loop: `python examples/async_texts.py [model.gguf]`."""

from __future__ import annotations

import asyncio
import sys

import zinc_rt

TOPICS = ["a cat", "a boat", "a wish"]


async def tell(model: zinc_rt.AsyncModel, topic: str) -> str:
    """A story's first words, piece by piece."""
    pieces = [chunk.text async for chunk in model.chat_stream(f"Tell me a story about {topic}.", seed=4, max_tokens=30)]
    return f"{topic}: {''.join(pieces)!r}"


async def main(path: str | None = None) -> None:
    """Print what was told, in the order of the topics."""
    async with await zinc_rt.AsyncModel.load(path) as model:
        for told in await asyncio.gather(*(tell(model, topic) for topic in TOPICS)):
            print(told)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
