"""`GET /v1/models` and `GET /v1/models/{id}`."""

from __future__ import annotations

from typing import Any, Final

from zinc_rt.sampling.params import PARAMETERS, Api
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.served_adapters import ServedAdapter
from zinc_rt.serving.api.service import Service

_SHOWN: Final = [
    row.name
    for row in PARAMETERS.values()
    if row.json is not None and row.json.apis == frozenset(Api) and row.default is not None
]
"""The parameters whose defaults are told: those that each interface takes."""


def _record(service: Service, name: str) -> dict[str, Any]:
    model = service.model
    return {
        "id": name,
        "object": "model",
        "created": model.created,
        "owned_by": "zinc",
        "meta": {
            "architecture": model.architecture,
            "n_ctx": model.n_ctx,
            "n_vocab": model.tokenizer.n_vocab,
            "fingerprint": service.fingerprint,
            "chat": model.chat is not None,
            "dialect": model.chat.dialect.name if model.chat is not None else None,
            "tools": model.chat is not None and model.chat.dialect.takes_tools,
            "pictures": model.pictures is not None,
            "dimensions": model.dimensions,
            "ranks": model.pairs is not None,
            "defaults": {name: getattr(model.defaults, name) for name in _SHOWN},
        },
    }


def _adapter(service: Service, adapter: ServedAdapter) -> dict[str, Any]:
    """An adapter as a model of its own, as vLLM has it."""
    return {**_record(service, adapter.name), "parent": service.model.name, "root": adapter.path}


def _check_loaded(service: Service) -> None:
    if service.loading is not None and (no := service.unready()) is not None:
        raise no


async def models(service: Service, call: Call) -> None:
    """List the model under each of its names. Raises `ApiError` while it is loaded: its context is not known before."""
    _check_loaded(service)
    model = service.model
    data = [_record(service, name) for name in model.names]
    data += [_adapter(service, adapter) for adapter in model.adapters.entries]
    await call.reply_json({"object": "list", "data": data})


async def model(service: Service, call: Call) -> None:
    """Describe the model of a name."""
    _check_loaded(service)
    name = call.path.removeprefix("/v1/models/")
    service.model.check_name(name)
    adapter = service.model.adapters.find(name)
    await call.reply_json(_record(service, name) if adapter is None else _adapter(service, adapter))
