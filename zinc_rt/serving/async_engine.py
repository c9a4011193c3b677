"""`AsyncEngine`: one model for many tasks of an event loop.

    async with AsyncEngine.open("model.gguf") as engine:
        async for chunk in engine.stream("Once upon a time", temperature=0.7):
            print(chunk.text, end="")

Texts that are asked for at the same time are computed together; none depends on the others.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Unpack

from zinc_rt.chunks import ChunkMaker, PlainText
from zinc_rt.errors import ZincError
from zinc_rt.loading import LoadOptions, load
from zinc_rt.model import Model
from zinc_rt.prompts import EmptyPrompt, check_fits, check_ids
from zinc_rt.sampling.generation import Chunk, Generation
from zinc_rt.sampling.params import SamplingOverrides, SamplingParams
from zinc_rt.sampling.sampler import Sampler
from zinc_rt.serving.client import EngineClient
from zinc_rt.serving.core import CoreOptions, EngineCore
from zinc_rt.serving.messages import EngineInfo, Failed, Finished, QoS, Submit, TenantShare, Token
from zinc_rt.serving.thread import ThreadClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from zinc_rt.text import Tokenizer


class Asking(SamplingOverrides, total=False):
    """Keyword arguments of `AsyncEngine.stream`."""

    tenant: str
    qos: QoS
    seconds: float | None


class RequestFailed(ZincError):
    """A request could not go on. error: the name of the exception's class in the engine."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(f"{error}: {message}")
        self.error = error


class AsyncEngine:
    """Texts from an engine behind a client. Belongs to one event loop; any number of its tasks may use it.

    Args:
        client: started.
        info: what its start returned.
        tokenizer: of its model.
    """

    def __init__(self, client: EngineClient, info: EngineInfo, tokenizer: Tokenizer) -> None:
        self.client, self.info, self.tokenizer = client, info, tokenizer
        self._numbers = itertools.count()

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: str | None = None, *, core: CoreOptions | None = None, **options: Unpack[LoadOptions]
    ) -> AsyncIterator[AsyncEngine]:
        """An engine on a thread of this process, closed at the end of the block.

        Args:
            path: the file; None for the model inside the package.
            core: how the loop of steps runs.
            options: see `zinc_rt.load`; `n_slots` says how many texts are computed at once.

        Raises:
            What `load` raises; `UsageError` for a model that embeds.
        """
        models: list[Model] = []

        def open_core() -> EngineCore:
            model = load(path, **options)
            try:
                made = model.make_core(core)
            except BaseException:
                model.close()
                raise
            models.append(model)
            return made

        client = ThreadClient(open_core)
        info = await client.start()
        try:
            yield cls(client, info, models[0].tokenizer)
        finally:
            await client.close()

    async def stream(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        *,
        tenant: str = "default",
        qos: QoS = QoS.standard,
        seconds: float | None = None,
        **overrides: Unpack[SamplingOverrides],
    ) -> AsyncGenerator[Chunk]:
        """Generate after a prompt (text, or token ids as they are), chunk by chunk. Leaving the loop cancels the rest;
        `aclose` does it at once.

        Args:
            prompt, params, overrides: as for `Model.stream`.
            tenant: whose share of the engine it takes. Texts of other tenants are not reused for it.
            qos: its class of service.
            seconds: limit until the last token; the text ends with finish_reason "cancelled" then.

        Raises:
            What `Model.stream` raises for a bad request.
            RequestFailed: the engine could not go on.
        """
        request = self._request(prompt, SamplingParams.with_overrides(params, **overrides), tenant, qos, seconds)
        chunks = ChunkMaker(PlainText(self.tokenizer, request.params.stop), request, self.tokenizer)
        events = self.client.submit(request)
        try:
            async for event in events:
                match event:
                    case Token():
                        if chunks.stopped:  # computed before the engine heard of it
                            continue
                        yield chunks.token(event)
                        self._cancel_if(chunks, request)
                    case Finished():
                        yield chunks.last(event)
                    case Failed():
                        raise RequestFailed(event.error, event.message)
        finally:
            await events.aclose()

    def _cancel_if(self, chunks: ChunkMaker, request: Submit) -> None:
        if chunks.stopped:
            self.client.cancel(request.id, "stop string")

    def _request(
        self, prompt: str | Sequence[int], params: SamplingParams, tenant: str, qos: QoS, seconds: float | None
    ) -> Submit:
        seed = Sampler(params, self.tokenizer.n_vocab).seed
        if isinstance(prompt, str) and not prompt:
            raise EmptyPrompt("the prompt is empty; give at least one character")
        ids = check_ids(self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt, self.tokenizer.n_vocab)
        check_fits(ids, self.info.n_ctx)
        number = str(next(self._numbers))
        return Submit(number, tuple(ids), params, seed, tenant, qos, salt=tenant.encode(), seconds=seconds)

    async def generate(
        self, prompt: str | Sequence[int], params: SamplingParams | None = None, **asked: Unpack[Asking]
    ) -> Generation:
        """The whole text at once; arguments and errors as for `stream`."""
        return Generation.collect([chunk async for chunk in self.stream(prompt, params, **asked)])

    async def generate_all(
        self, prompts: Sequence[str | Sequence[int]], params: SamplingParams | None = None, **asked: Unpack[Asking]
    ) -> list[Generation]:
        """The texts of several prompts, computed together; arguments and errors as for `stream`."""
        async with asyncio.TaskGroup() as tasks:
            made = [tasks.create_task(self.generate(prompt, params, **asked)) for prompt in prompts]
        return [task.result() for task in made]

    def share(self, tenant: TenantShare) -> None:
        """How a tenant is served from now on. Raises `InvalidTenantLimits`."""
        self.client.share(tenant)
