"""`POST /v1/rerank`, where the model ranks texts. The request and the answer are Jina's and Cohere's."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from zinc_rt.errors import ZincError
from zinc_rt.llm.ranking import ranked
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.errors import ApiError, invalid
from zinc_rt.serving.api.fields import RERANK
from zinc_rt.serving.api.ids import new_id
from zinc_rt.serving.api.requests import read
from zinc_rt.serving.api.service import Gives, Service
from zinc_rt.text import TokenizerError

PATHS: Final = ("/v1/rerank", "/rerank", "/v1/reranking", "/reranking")
"""The last three are llama.cpp's."""
_DOCUMENTS = 1024


class RerankDocument(msgspec.Struct, kw_only=True):
    """A document that is an object."""

    text: str


class RerankRequest(msgspec.Struct, kw_only=True):
    """The fields that are obeyed; `fields.RERANK` says what each does."""

    query: str
    documents: Annotated[list[str | RerankDocument], Meta(min_length=1, max_length=_DOCUMENTS)]
    model: str | None = None
    top_n: Annotated[int, Meta(ge=1)] | None = None
    return_documents: bool = False


async def rerank(service: Service, call: Call) -> None:
    """Texts in order of how well they answer a query."""
    call.id = new_id("rank-")
    ticket = service.enter(call, Gives.SCORES)
    request = read(call, await call.body(), RerankRequest, RERANK, service.config.strict)
    async with call.attended():
        service.model.check_name(request.model)
        texts = [document if isinstance(document, str) else document.text for document in request.documents]
        pairs = await _pairs(service, request.query, texts)
        total = sum(map(len, pairs))
        service.admission.count(ticket, total)
        assert service.embedder is not None
        try:
            scores = await service.embedder.scores(pairs)
        except ZincError as error:
            raise ApiError(500, str(error), code="engine_error") from None
        results: list[dict[str, Any]] = []
        for found in ranked(texts, scores, request.top_n):
            results.append({"index": found.index, "relevance_score": found.score})
            if request.return_documents:
                results[-1]["document"] = {"text": found.text}
        call.facts["prompt_tokens"] = total
        usage = {"prompt_tokens": total, "total_tokens": total}
        await call.reply_json({"object": "list", "model": service.model.name, "results": results, "usage": usage})


async def _pairs(service: Service, query: str, texts: list[str]) -> list[list[int]]:
    """Token ids of the query with each text. Raises `ApiError`."""
    model = service.model
    model.check_bytes(query, "query")
    for text in texts:
        model.check_bytes(text, "documents")
    prompt = model.pairs
    assert prompt is not None
    try:
        pairs = await model.aside(lambda: [prompt.encode(query, text) for text in texts])
    except TokenizerError as error:
        raise invalid(str(error), "documents") from None
    for i, pair in enumerate(pairs):
        if len(pair) > model.n_ctx:
            said = f"the query and document {i} have {len(pair)} tokens, the context holds {model.n_ctx}; shorten them"
            raise ApiError(400, said, param="documents", code="context_length_exceeded")
    return pairs
