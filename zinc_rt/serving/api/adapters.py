"""Adapters over HTTP: `/lora-adapters` as llama.cpp has it, loading and unloading as vLLM has it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec

from zinc_rt.adapters.file import AdapterFile
from zinc_rt.adapters.slots import AdapterRequest
from zinc_rt.errors import ZincError
from zinc_rt.gguf.errors import GGUFError
from zinc_rt.scheduler.messages import LoadAdapter, UnloadAdapter
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.errors import ApiError, invalid
from zinc_rt.serving.api.ids import new_id
from zinc_rt.serving.api.requests import converted, read_json
from zinc_rt.serving.api.served_adapters import LoraScale
from zinc_rt.serving.api.service import AskedModel, Service
from zinc_rt.serving.request_log import AdapterRefused
from zinc_rt.utils.checks import show

_TEXT = b"text/plain; charset=utf-8"


class LoadRequest(msgspec.Struct, kw_only=True):
    """A file on the server's machine, and the name by which requests choose it. model: of several, the first by
    default.
    """

    lora_name: str
    lora_path: str
    model: str | None = None


class UnloadRequest(msgspec.Struct, kw_only=True):
    """An adapter by its name."""

    lora_name: str


async def named_by_adapter(front: Service, call: Call) -> AskedModel:
    """The model that has an adapter. Raises `ApiError`."""
    return AskedModel(converted(read_json(await call.body()), UnloadRequest).lora_name)


async def show_adapters(service: Service, call: Call) -> None:
    """List the adapters and the scales for requests that choose none."""
    await call.reply_json(service.model.adapters.shown())


async def scale_adapters(service: Service, call: Call) -> None:
    """Set the scales for requests that choose none; for administrators."""
    service.check_admin(call)
    try:
        scales = msgspec.json.decode(await call.body(), type=list[LoraScale])
    except msgspec.DecodeError as error:
        raise invalid(f"the body must be an array of objects with id and scale: {error}", code="invalid_type") from None
    service.model.adapters.rescale(scales)
    await call.reply_json({"success": True})


async def load_adapter(service: Service, call: Call) -> None:
    """Load an adapter while the server runs; for administrators."""
    service.check_admin(call)
    call.id = new_id("lora-")
    service.enter(call, None)
    request = converted(read_json(await call.body()), LoadRequest)
    if not service.model.adapters.slots:  # before a file is looked at: without keys everyone is an administrator
        said = "the server was started without room for more adapters; start it with --lora-slots"
        raise ApiError(403, said, code="forbidden")
    model, name = service.model, request.lora_name
    if not name or name in model.names or model.adapters.find(name) is not None:
        raise invalid(f"lora_name is {show(name)}, which is empty or taken", "lora_name")
    try:
        with AdapterFile.open(Path(request.lora_path)) as file:
            sha256 = await model.aside(partial(model.adapters.sha256, file))
            await service.client.change_adapters(LoadAdapter(call.id, name, request.lora_path))
            model.adapters.add(file, AdapterRequest(Path(request.lora_path), name, 0.0), sha256)
    except (AdapterRefused, GGUFError, ZincError) as error:
        raise ApiError(400, str(error), param="lora_path", code="adapter_refused") from None
    await call.reply(f"Success: adapter {name!r} is loaded.".encode(), kind=_TEXT)


async def unload_adapter(service: Service, call: Call) -> None:
    """Forget an adapter, once the requests that use it have ended; for administrators."""
    service.check_admin(call)
    call.id = new_id("lora-")
    service.enter(call, None)
    request = converted(read_json(await call.body()), UnloadRequest)
    if service.model.adapters.find(request.lora_name) is None:
        said = f"no adapter {show(request.lora_name)} is loaded"
        raise ApiError(404, said, param="lora_name", code="model_not_found")
    service.model.adapters.remove(request.lora_name)
    try:
        await service.client.change_adapters(UnloadAdapter(call.id, request.lora_name))
    except AdapterRefused as error:
        raise ApiError(400, str(error), param="lora_name", code="adapter_refused") from None
    await call.reply(f"Success: adapter {request.lora_name!r} is unloaded.".encode(), kind=_TEXT)
