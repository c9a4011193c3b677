"""`/v1/models`, `/v1/models/{id}`, and `/load` and `/unload` below the latter where there are several."""

from __future__ import annotations

from typing import Any, Final

from zinc_rt.sampling.params import PARAMETERS, Api
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.errors import ApiError
from zinc_rt.serving.api.model_table import HostedModel, ModelTable, table_of
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
        "created": model.file.created,
        "owned_by": "zinc",
        "root": model.name,
        "meta": {
            "architecture": model.file.architecture,
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
    """An adapter as a model of its own, as vLLM has it; `meta.adapter` is its number for `lora`."""
    record = _record(service, adapter.name)
    meta = record["meta"] | {"adapter": adapter.id}
    return {**record, "meta": meta, "parent": service.model.name, "root": adapter.path}


def _check_loaded(service: Service) -> None:
    if service.loading is not None and (no := service.unready()) is not None:
        raise no


async def models(service: Service, call: Call) -> None:
    """List what can be had, under each name. Raises `ApiError` while the only model is loaded: its context is not known
    before.
    """
    _check_loaded(service)
    table = table_of(service)
    data = _records(service) if table is None else [record for hosted in table.models for record in _hosted(hosted)]
    await call.reply_json({"object": "list", "data": data})


def _records(service: Service) -> list[dict[str, Any]]:
    """A loaded model under each of its names, and its adapters."""
    found = [_record(service, name) for name in service.model.names]
    return found + [_adapter(service, adapter) for adapter in service.model.adapters.entries]


def _hosted(hosted: HostedModel) -> list[dict[str, Any]]:
    """One of several models: what is known of it without loading it, and whether it is loaded."""
    fitted = hosted.fitted
    plain = {"object": "model", "created": fitted.file.created, "owned_by": "zinc", "root": hosted.name}
    if hosted.service is not None:
        found = _records(hosted.service)
    else:
        known = {**plain, "meta": {"architecture": fitted.file.architecture, "pictures": fitted.pictures}}
        found = [{"id": name, **known} for name in fitted.names]
        found += [{"id": name, **known, "parent": hosted.name} for name in fitted.adapters]
    return [{**record, "size": fitted.file.size, "status": {"value": hosted.state}} for record in found]


def _table(service: Service, call: Call) -> ModelTable:
    service.check_admin(call)
    if (table := table_of(service)) is None:
        raise ApiError(400, "this server has one model, which is always loaded", code="one_model")
    return table


def _named(call: Call) -> str:
    return call.path.removeprefix("/v1/models/").rpartition("/")[0]


async def load(service: Service, call: Call) -> None:
    """Load one of several models, for administrators."""
    table = _table(service, call)
    await call.body()
    async with call.attended():
        hosted = await table.load(_named(call))
        await call.reply_json(_hosted(hosted)[0])


async def unload(service: Service, call: Call) -> None:
    """Unload one of several models, for administrators. Raises `ApiError` while it has requests."""
    hosted = await _table(service, call).unload(_named(call))
    await call.reply_json(_hosted(hosted)[0])


async def model(service: Service, call: Call) -> None:
    """Describe the model of a name."""
    _check_loaded(service)
    name = call.path.removeprefix("/v1/models/")
    if (table := table_of(service)) is not None:
        found = _hosted(table.find(name))
        await call.reply_json(next((record for record in found if record["id"] == name), found[0]))
        return
    service.model.check_name(name)
    adapter = service.model.adapters.find(name)
    await call.reply_json(_record(service, name) if adapter is None else _adapter(service, adapter))
