"""`AsyncModel`: a model for the tasks of an event loop.

    async with await AsyncModel.load("model.gguf") as model:
        async for chunk in model.stream("Once upon a time", temperature=0.7):
            print(chunk.text, end="")

The names, arguments and answers are those of `Model`. Texts that tasks ask for at the same time are computed together,
and with those of threads that use the same `Model`; none depends on the others. Steps run on a thread that is there
while tasks wait for texts; prompts are rendered and tokenized on worker threads, so the loop never waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, Unpack, cast, overload

import numpy as np
import numpy.typing as npt

from zinc_rt.llm.input_processor import (
    ChatOptions,
    Messages,
    PreparedRequest,
    Prompt,
    Prompts,
    prompt_list,
    with_params,
)
from zinc_rt.llm.load import LoadOptions, load
from zinc_rt.llm.many import Progress, counting, noted
from zinc_rt.llm.model import Model
from zinc_rt.llm.ranking import RankedText
from zinc_rt.sampling.generation import Chunk, Generation
from zinc_rt.sampling.params import SamplingOverrides, SamplingParams
from zinc_rt.sampling.processors import LogitsProcessor, check_processors
from zinc_rt.scheduler.output import T

if TYPE_CHECKING:
    from zinc_rt.llm.chat import ChatAnswer, ChatChunk


class AsyncModel:
    """A `Model` whose texts tasks wait for. Any number of tasks, and of event loops, may share one.

    A task that is cancelled, and an iterator that is closed, end their texts: the step that runs is the last one with a
    row of theirs. `model` is the model itself, for all that takes no time.

    Args:
        model: loaded; others may use it, too. `close` closes it.
    """

    def __init__(self, model: Model) -> None:
        self.model = model

    @classmethod
    async def load(cls, path: str | Path | None = None, **options: Unpack[LoadOptions]) -> Self:
        """Load a model on a worker thread. Arguments and errors are those of `zinc_rt.load`."""
        return cls(await asyncio.to_thread(load, path, **options))

    async def close(self) -> None:
        """`Model.close`; texts that are computed end with `ModelClosed`."""
        await asyncio.to_thread(self.model.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncModel of {self.model!r}>"

    @overload
    async def generate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        logits_processors: Iterable[LogitsProcessor] = (),
        **overrides: Unpack[SamplingOverrides],
    ) -> Generation: ...
    @overload
    async def generate(
        self,
        prompt: Prompts,
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        logits_processors: Iterable[LogitsProcessor] = (),
        **overrides: Unpack[SamplingOverrides],
    ) -> list[Generation]: ...

    async def generate(
        self,
        prompt: Prompt | Prompts,
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        logits_processors: Iterable[LogitsProcessor] = (),
        **overrides: Unpack[SamplingOverrides],
    ) -> Generation | list[Generation]:
        """The text behind a prompt, or the texts behind several; arguments and errors as for `Model.generate`."""
        self.model.check_ready()
        many, processor = prompt_list(prompt), self.model.input_processor
        if many is None:
            one, chosen = cast("Prompt", prompt), cast("SamplingParams | None", params)
            made = [await asyncio.to_thread(processor.text, one, chosen, logits_processors, overrides)]
        else:
            made = await asyncio.to_thread(processor.texts, many, params, logits_processors, overrides)
        texts: list[_Text[Chunk]] = []
        try:
            texts.extend(_Text(self.model, request) for request in made)
            whole = [Generation.collect([chunk async for chunk in text]) for text in texts]
        finally:
            for text in texts:
                text.leave()
        return whole if many is not None else whole[0]

    async def generate_each(
        self,
        prompts: Iterable[Prompt],
        params: SamplingParams | Iterable[SamplingParams] | None = None,
        *,
        logits_processors: Iterable[LogitsProcessor] = (),
        progress: Progress = False,
        **overrides: Unpack[SamplingOverrides],
    ) -> AsyncGenerator[tuple[int, Generation]]:
        """The texts behind any number of prompts, each as soon as it is whole; arguments and errors as for
        `Model.generate_each`. What `stream` says of checks and of loops that are left holds here, too.
        """
        functions = check_processors(logits_processors)

        async def text(number: int, prompt: Prompt, own: SamplingParams | None) -> tuple[int, Generation]:
            with noted(number):
                return number, await self.generate(prompt, own, logits_processors=functions, **overrides)

        waiting = (text(number, *pair) for number, pair in enumerate(with_params(prompts, params)))
        running: set[asyncio.Task[tuple[int, Generation]]] = set()
        whole = 0
        try:
            with counting(progress, prompts) as tell:
                while True:
                    while len(running) < self.model.engine.options.n_slots and (made := next(waiting, None)):
                        running.add(asyncio.create_task(made))
                    if not running:
                        return
                    done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        running.remove(task)
                        whole += 1
                        tell(whole)
                        yield task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        logits_processors: Iterable[LogitsProcessor] = (),
        **overrides: Unpack[SamplingOverrides],
    ) -> AsyncGenerator[Chunk]:
        """Generate after a prompt, chunk by chunk; arguments, chunks and errors as for `Model.stream`.

        Arguments are checked when the first chunk is asked for. Where a loop over it is left early, the text ends when
        the iterator is collected; `contextlib.aclosing` ends it at once.
        """
        self.model.check_ready()
        prepare = self.model.input_processor.text
        text = _Text(self.model, await asyncio.to_thread(prepare, prompt, params, logits_processors, overrides))
        try:
            async for chunk in text:
                yield chunk
        finally:
            text.leave()

    async def chat(self, messages: Messages, **options: Unpack[ChatOptions]) -> ChatAnswer:
        """The whole answer to a conversation; arguments and errors as for `Model.chat_stream`."""
        from zinc_rt.llm.chat import ChatAnswer

        chunks = [chunk async for chunk in self.chat_stream(messages, **options)]
        return ChatAnswer.collect(chunks, options.get("response_format"))

    async def chat_stream(self, messages: Messages, **options: Unpack[ChatOptions]) -> AsyncGenerator[ChatChunk]:
        """Answer a conversation, token by token; arguments, chunks and errors as for `Model.chat_stream`.

        What `stream` says of checks and of loops that are left holds here, too.
        """
        self.model.check_ready()
        text = _Text(self.model, await asyncio.to_thread(self.model.input_processor.chat, messages, options))
        try:
            async for chunk in text:
                yield chunk
        finally:
            text.leave()

    async def logits(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
        """`Model.logits`, on a worker thread."""
        return await asyncio.to_thread(self.model.logits, tokens)

    async def embed(
        self, texts: Prompt | Iterable[Prompt], *, normalize: bool = True, dimensions: int | None = None
    ) -> npt.NDArray[np.float32]:
        """`Model.embed`, on a worker thread."""
        return await asyncio.to_thread(self.model.embed, texts, normalize=normalize, dimensions=dimensions)

    async def rerank(self, query: str, texts: Iterable[str], *, top_n: int | None = None) -> list[RankedText]:
        """`Model.rerank`, on a worker thread."""
        return await asyncio.to_thread(self.model.rerank, query, texts, top_n=top_n)


class _Text(Generic[T]):
    """The pieces of one request, for one task; posted when it is made. `leave` it at the end."""

    def __init__(self, model: Model, request: PreparedRequest[T]) -> None:
        self._client, self._id = model.client, request.output.request.id
        self._pieces: deque[T | BaseException] = deque()
        self._over = False
        self._some = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._client.post(request.output, self._give, request.processors)

    def _give(self, pieces: Sequence[T | BaseException], over: bool) -> None:
        """Called on the thread of a step."""
        try:
            self._loop.call_soon_threadsafe(self._take, pieces, over)
        except RuntimeError:  # the loop was closed with the request in it
            self.leave()

    def _take(self, pieces: Sequence[T | BaseException], over: bool) -> None:
        self._pieces += pieces
        self._over = over
        self._some.set()

    def leave(self) -> None:
        """The task waits for no more of it."""
        self._client.leave(self._id)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while not self._pieces:
            if self._over:
                raise StopAsyncIteration
            self._some.clear()
            await self._some.wait()
        piece = self._pieces.popleft()
        if isinstance(piece, BaseException):
            raise piece
        return piece
