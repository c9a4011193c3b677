"""`POST /v1/embeddings`, where the model embeds."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from zinc_rt.errors import UsageError, ZincError
from zinc_rt.serving.api.admission import Ticket
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.completions import prompts_of, token_ids
from zinc_rt.serving.api.errors import ApiError, invalid
from zinc_rt.serving.api.fields import EMBEDDINGS
from zinc_rt.serving.api.ids import new_id
from zinc_rt.serving.api.requests import read
from zinc_rt.serving.api.service import Gives, Service


class EmbeddingRequest(msgspec.Struct, kw_only=True):
    """The fields that are obeyed; `fields.EMBEDDINGS` says what each does."""

    input: str | list[Any] | None = None
    content: str | list[Any] | None = None
    model: str | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    encoding_format: Literal["float", "base64"] | None = None


async def embeddings(service: Service, call: Call) -> None:
    """Vectors of texts."""
    call.id = new_id("embd-")
    ticket = service.enter(call, Gives.VECTORS)
    request = read(call, await call.body(), EmbeddingRequest, EMBEDDINGS, service.config.strict)
    async with call.attended():
        service.model.check_name(request.model)
        if (request.input is None) == (request.content is None):
            raise invalid("give either input or content", "input", "missing_required_parameter")
        param = "input" if request.content is None else "content"
        tokens = await token_ids(service, prompts_of(getattr(request, param), param), param)
        vectors = await vectors_of(service, ticket, tokens, request.dimensions, param)
        data = [
            {
                "object": "embedding",
                "index": i,
                "embedding": base64.b64encode(vector.tobytes()).decode()
                if request.encoding_format == "base64"
                else vector.tolist(),
            }
            for i, vector in enumerate(vectors)
        ]
        total = sum(map(len, tokens))
        call.facts["prompt_tokens"] = total
        usage = {"prompt_tokens": total, "total_tokens": total}
        await call.reply_json({"object": "list", "data": data, "model": service.model.name, "usage": usage})


async def vectors_of(
    service: Service, ticket: Ticket, tokens: Sequence[Sequence[int]], dimensions: int | None, param: str = "input"
) -> npt.NDArray[np.float32]:
    """f32[n_texts, dimensions] of texts' tokens. param: the field that has the texts. Reserves the tokens. Raises
    `ApiError`.
    """
    for i, ids in enumerate(tokens):
        if not ids:
            raise invalid(f"{param} {i} is empty", param, "empty_prompt")
    service.admission.count(ticket, sum(map(len, tokens)))
    assert service.embedder is not None
    try:
        return await service.embedder.embed(tokens, dimensions)
    except UsageError as error:
        raise invalid(str(error), "dimensions" if dimensions else param) from None
    except ZincError as error:
        raise ApiError(500, str(error), code="engine_error") from None
