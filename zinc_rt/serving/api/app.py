"""`App`: the ASGI application. Finds the endpoint of a request, knows its tenant, and turns errors into answers."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from starlette.routing import Match, Route

from zinc_rt.serving.api import (
    adapters,
    anthropic,
    chat,
    completions,
    embeddings,
    fields,
    health,
    llamacpp,
    models,
    ollama,
    ollama_models,
    page,
    replays,
    rerank,
    responses,
    tokens,
)
from zinc_rt.serving.api.call import Call, ClientGone, Receive, Scope, Send
from zinc_rt.serving.api.chat_common import ChatRequest
from zinc_rt.serving.api.errors import ApiError
from zinc_rt.serving.api.ids import new_id
from zinc_rt.serving.api.logs import tell
from zinc_rt.serving.api.openapi import Endpoint, document
from zinc_rt.serving.api.service import Service
from zinc_rt.serving.api.web import preflight


async def describe(service: Service, call: Call) -> None:
    """All of this as OpenAPI has it."""
    await call.reply_json(document(ENDPOINTS))


ENDPOINTS: Final = (
    *(Endpoint("GET", path, page.page, public=True, counted=False) for path in page.FILES),
    Endpoint("POST", "/v1/chat/completions", chat.chat_completions, body=ChatRequest, fields=fields.CHAT),
    Endpoint(
        "POST",
        "/v1/completions",
        completions.completions,
        body=completions.CompletionRequest,
        fields=fields.COMPLETIONS,
    ),
    Endpoint("POST", "/v1/responses", responses.responses, body=responses.ResponsesRequest, fields=fields.RESPONSES),
    Endpoint("GET", "/v1/responses", responses.no_socket, counted=False),
    Endpoint("GET", "/v1/responses/{id}", responses.show_response, counted=False),
    Endpoint("DELETE", "/v1/responses/{id}", responses.delete_response, counted=False),
    Endpoint("GET", "/v1/responses/{id}/input_items", responses.input_items, counted=False),
    Endpoint("POST", "/v1/messages", anthropic.messages, body=anthropic.MessagesRequest, fields=fields.ANTHROPIC),
    Endpoint(
        "POST",
        "/v1/messages/count_tokens",
        anthropic.count_tokens,
        body=anthropic.CountRequest,
        fields=fields.ANTHROPIC,
    ),
    Endpoint(
        "POST", "/v1/embeddings", embeddings.embeddings, body=embeddings.EmbeddingRequest, fields=fields.EMBEDDINGS
    ),
    Endpoint("POST", "/tokenize", tokens.tokenize, body=tokens.TokenizeRequest),
    Endpoint("GET", "/tokenizer_info", tokens.tokenizer_info, counted=False),
    Endpoint("POST", "/detokenize", tokens.detokenize, body=tokens.DetokenizeRequest),
    Endpoint(
        "POST",
        "/api/chat",
        ollama.chat,
        body=ollama.OllamaChat,
        fields=ollama.CHAT,
        naming=ollama.named_for_text,
    ),
    Endpoint(
        "POST",
        "/api/generate",
        ollama.generate,
        body=ollama.OllamaGenerate,
        fields=ollama.GENERATE,
        naming=ollama.named_for_text,
    ),
    Endpoint("POST", "/api/embed", ollama.embed, body=ollama.OllamaEmbed, fields=ollama.EMBED),
    Endpoint("POST", "/api/embeddings", ollama.embeddings, body=ollama.OllamaEmbeddings, fields=ollama.EMBEDDINGS),
    Endpoint("POST", "/api/show", ollama_models.show, counted=False, body=ollama_models.OllamaModel, loads=False),
    Endpoint("POST", "/api/pull", ollama_models.pull, body=ollama_models.OllamaModel, of_model=False),
    Endpoint("DELETE", "/api/delete", ollama_models.delete, body=ollama_models.OllamaModel, of_model=False),
    Endpoint("GET", "/api/tags", ollama_models.tags, counted=False),
    Endpoint("GET", "/api/ps", ollama_models.running, counted=False),
    Endpoint("GET", "/api/version", ollama_models.version, counted=False),
    Endpoint("GET", "/props", llamacpp.props, counted=False, of_model=True, loads=False),
    Endpoint("GET", "/slots", llamacpp.slots, counted=False, of_model=True, loads=False),
    Endpoint("POST", "/apply-template", llamacpp.apply_template, body=llamacpp.TemplateRequest),
    *(
        Endpoint("POST", path, llamacpp.completion, body=llamacpp.LlamaCompletion, fields=llamacpp.COMPLETION)
        for path in llamacpp.COMPLETION_PATHS
    ),
    Endpoint("POST", "/infill", llamacpp.infill, body=llamacpp.InfillRequest, fields=llamacpp.INFILL),
    *(Endpoint("POST", path, rerank.rerank, body=rerank.RerankRequest, fields=fields.RERANK) for path in rerank.PATHS),
    Endpoint("GET", "/lora-adapters", adapters.show_adapters, counted=False, of_model=True, loads=False),
    Endpoint("POST", "/lora-adapters", adapters.scale_adapters, counted=False, of_model=True),
    Endpoint("POST", "/v1/load_lora_adapter", adapters.load_adapter, body=adapters.LoadRequest),
    Endpoint(
        "POST",
        "/v1/unload_lora_adapter",
        adapters.unload_adapter,
        body=adapters.UnloadRequest,
        naming=adapters.named_by_adapter,
    ),
    Endpoint("POST", "/v1/models/{id:path}/load", models.load, counted=False),
    Endpoint("POST", "/v1/models/{id:path}/unload", models.unload, counted=False),
    Endpoint("GET", "/v1/models", models.models, counted=False),
    Endpoint("GET", "/v1/models/{id:path}", models.model, counted=False),
    Endpoint("GET", "/version", health.version, counted=False),
    Endpoint("GET", "/openapi.json", describe, counted=False),
    Endpoint("GET", "/health", health.health, public=True, counted=False),
    Endpoint("GET", "/health/live", health.live, public=True, counted=False),
    Endpoint("GET", "/health/ready", health.ready, public=True, counted=False),
    Endpoint("GET", "/health/progress", health.progress, public=True, counted=False),
    Endpoint("GET", "/metrics", health.metrics, counted=False),
    Endpoint("POST", "/v1/zinc/replay", replays.replay, body=replays.ReplayRequest, naming=replays.named_in_record),
    Endpoint("GET", "/v1/zinc/receipts/{id}", replays.receipt, counted=False),
    Endpoint("GET", "/v1/worldline", replays.chain, counted=False),
    Endpoint("GET", "/v1/worldline/tail", replays.chain_tail, counted=False),
    Endpoint("GET", "/v1/zinc/requests/{id}", health.show_request, counted=False),
    Endpoint("DELETE", "/v1/zinc/requests/{id}", health.cancel_request, counted=False),
)


class App:
    """Raw ASGI: no middleware stands between the client and the endpoint, so a disconnect is seen at once."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._exact = {(e.method, e.path): e for e in ENDPOINTS if "{" not in e.path}
        self._routes = [(Route(e.path, _never, methods=[e.method]), e) for e in ENDPOINTS]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        service = self.service
        call = Call(scope, receive, send, service.tenants.limits, service.reads_pictures, service.large)
        counted = True
        try:
            call.extra += self.service.config.web.check(call.header, self.service.keys is None)
            if (asked := preflight(call.method, call.header, call.extra)) is not None:
                call.extra, counted = asked, False
                await call.reply(b"", 204)
                return
            endpoint = self._find(scope)
            call.endpoint, counted = endpoint.path, endpoint.counted
            if not endpoint.public:
                call.tenant = self.service.tenant_of(call)
            call.check_size()
            if endpoint.counted:
                call.id = new_id("req-")
            if endpoint.of_model:
                service = await service.of(call, endpoint.streams, endpoint.naming, endpoint.loads)
            await endpoint.handler(service, call)
        except ApiError as error:
            await self._refuse(call, error)
        except ClientGone:
            call.outcome, call.status = "client_gone", call.status or 499
            await call.hang_up()
        except asyncio.CancelledError:
            call.outcome = "server_gone"
            raise
        except Exception:
            self.service.log.exception("internal error", extra={"facts": {"id": call.id, "endpoint": call.endpoint}})
            said = f"an internal error; the server's log tells of it under the id {call.id}"
            await self._refuse(call, ApiError(500, said, code="internal_error"))
        finally:
            call.release()
            if self.service.running.get(call.id) is call:  # a stream that is resumed too early has the id of another
                del self.service.running[call.id]
            if counted:
                service.finished(call)
            service.left()

    async def _refuse(self, call: Call, error: ApiError) -> None:
        """Send an error, if nothing has been sent: a stream tells of its own."""
        call.outcome = call.outcome or error.code or error.kind
        if call.status and (call.complete or not call.waited):
            tell(self.service.log, "late error", logging.ERROR, id=call.id, message=str(error))
            return
        await call.refuse(error)

    def _find(self, scope: Scope) -> Endpoint:
        """The endpoint of a method and a path. Raises `ApiError`, 404 or 405."""
        method, path = "GET" if scope["method"] == "HEAD" else scope["method"], scope["path"]
        known = self._exact.get((method, path))
        if known is not None:
            return known
        allowed = set()
        for route, endpoint in self._routes:
            match, _ = route.matches(scope)
            if match is not Match.NONE and endpoint.method == method:
                return endpoint
            if match is not Match.NONE:
                allowed.add(endpoint.method)
        if allowed:
            raise ApiError(405, f"{path[:80]} takes {' or '.join(sorted(allowed))}", code="method_not_allowed")
        raise ApiError(404, f"there is no {path[:80]!r}; docs/use/openai.md lists what there is", code="not_found")


async def _never(*_: object) -> None:
    """What the routes would call; they are only asked whether they match."""
