"""Ollama's endpoints of models: `/api/tags`, `/api/ps`, `/api/show`, `/api/version`, `/api/pull`, `/api/delete`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Iterable
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any, Final

import msgspec

from zinc_rt.errors import ZincError
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.errors import ApiError, invalid
from zinc_rt.serving.api.llamacpp import fills_in
from zinc_rt.serving.api.model_table import LATEST, HostedModel, table_of
from zinc_rt.serving.api.requests import converted, read_json
from zinc_rt.serving.api.served_model import ANY_NAME, ModelFile
from zinc_rt.serving.api.service import Gives, Service
from zinc_rt.serving.api.sse import event_stream

VERSION: Final = "0.12.11"
"""The release of Ollama whose interface this is: clients ask for a least one."""
_TELL_SECONDS: Final = 0.1
"""From one line about a download to the next."""
_LONG: Final = 100 * 366 * 86400.0
_FILLS_IN: Final = "{# .Suffix: a suffix is filled in by tokens of the model #}"
"""In a template shown to clients that look for this word to learn whether a model fills in; a comment of Jinja."""


class OllamaModel(msgspec.Struct, kw_only=True):
    """Which model is asked for, by its newer or older name. stream: for `/api/pull`."""

    model: str | None = None
    name: str | None = None
    stream: bool = True

    @property
    def wanted(self) -> str:
        """The name. Raises `ApiError`."""
        if not (name := self.model or self.name):
            raise invalid("model is missing", "model", "missing_required_parameter")
        return name


async def tags(service: Service, call: Call) -> None:
    """The models under each of their names, and their adapters."""
    table = table_of(service)
    if table is None:
        models = [_entry(service, name) for name in _names(service)]
    else:
        models = [entry for model in table.models for entry in _hosted(model)]
    await call.reply_json({"models": models})


async def running(service: Service, call: Call) -> None:
    """What is loaded, and until when."""
    table = table_of(service)
    if table is not None:
        ends = [(one.service, table.seconds_left(one)) for one in table.models if one.service is not None]
    else:
        ends = [(service, math.inf)] if service.loading is None else []
    models = [
        _entry(one, name) | {"expires_at": _when(left), "size_vram": 0, "context_length": one.model.n_ctx}
        for one, left in ends
        for name in _names(one)
    ]
    await call.reply_json({"models": models})


def _when(seconds: float) -> str:
    """The time in so many seconds; that of the end of times for more than a hundred years."""
    never = datetime(9999, 12, 31, tzinfo=UTC)
    return time_text(datetime.now(UTC) + timedelta(seconds=seconds) if seconds < _LONG else never)


async def version(service: Service, call: Call) -> None:
    """The release of Ollama whose interface this is."""
    await call.reply_json({"version": VERSION})


async def show(service: Service, call: Call) -> None:
    """What a client may want to know of the model."""
    name = converted(read_json(await call.body()), OllamaModel).wanted
    check_model(service, name)
    model = service.model
    facts = {**model.file.metadata, "general.parameter_count": model.file.parameters}
    facts[f"{model.file.architecture}.context_length"] = model.n_ctx  # clients shorten prompts to this
    template = "" if model.template is None else model.template.source()
    defaults = {"num_ctx": model.n_ctx, "temperature": model.defaults.temperature, "top_k": model.defaults.top_k}
    entry = _entry(service, name)
    await call.reply_json(
        {
            "license": str(facts.get("general.license", "")),
            "modelfile": f"FROM {model.name}",
            "parameters": "\n".join(f"{key:<30} {value}" for key, value in defaults.items()),
            "template": template + _FILLS_IN * fills_in(model),
            "details": entry["details"],
            "model_info": facts,
            "capabilities": _capabilities(service),
            "modified_at": entry["modified_at"],
        }
    )


async def pull(service: Service, call: Call) -> None:
    """A model of the hub into this machine's cache; a model that is served is there already."""
    request = converted(read_json(await call.body()), OllamaModel)
    name = request.wanted
    async with call.attended():
        steps = _pulled(service, call, name)
        if not request.stream:
            told = [step async for step in steps]
            await call.reply_json(told[-1])
            return
        async with event_stream(call, service.tenants.limits, error_line, lines=True) as stream:
            async for step in steps:
                stream.add(msgspec.json.encode(step) + b"\n")
                await stream.send()


async def delete(service: Service, call: Call) -> None:
    """Delete a downloaded model that is not served, where the server's owner allows it."""
    name = converted(read_json(await call.body()), OllamaModel).wanted
    if not service.config.deletes:
        said = f"this server deletes no models; start it with --allow-delete, or delete {name[:80]!r} on its machine"
        raise ApiError(403, said, code="forbidden")
    service.check_admin(call)
    await asyncio.to_thread(_delete, service, name)
    await call.reply(b"")


def _delete(service: Service, name: str) -> None:
    from zinc_rt.hub.cached import find_one, remove
    from zinc_rt.hub.reference import parse

    served = ApiError(409, f"{name[:80]!r} is served; end this server before you delete it", code="model_in_use")
    if _is_served(service, name):
        raise served
    try:
        found = find_one(parse(name.removesuffix(LATEST)))
    except ZincError as error:
        raise ApiError(404, str(error), code="model_not_found") from None
    table = table_of(service)
    files = [service.model.file] if table is None else [model.fitted.file for model in table.models]
    if {file.path.resolve() for file in files} & {path.resolve() for path in found.paths}:
        raise served
    remove(found)


def _is_served(service: Service, name: str) -> bool:
    """Whether one of the server's models, or of their adapters, has a name."""
    if (table := table_of(service)) is not None:
        return table.known(name) is not None
    return plain(service, name) in (*service.model.names, *(one.name for one in service.model.adapters.entries))


def check_model(service: Service, name: str) -> None:
    """Refuse the name of another model. Raises `ApiError`, 404."""
    service.model.check_name(plain(service, name))


def plain(service: Service, name: str) -> str:
    """A model's name without what Ollama's clients put behind it."""
    known = name in service.model.names or service.model.adapters.find(name) is not None
    return name if known else name.removesuffix(LATEST)


def time_text(when: datetime) -> str:
    """A time as clients read it."""
    return when.isoformat().replace("+00:00", "Z")


def error_line(error: ApiError) -> bytes:
    """An error as a line of a stream."""
    return msgspec.json.encode(error.ollama()) + b"\n"


def _names(service: Service) -> list[str]:
    return _tagged([*service.model.names, *(adapter.name for adapter in service.model.adapters.entries)])


def _tagged(names: Iterable[str]) -> list[str]:
    """Names with a tag, as clients expect them in a list: some add `:latest` themselves before they look there."""
    return [name if ":" in name else name + LATEST for name in names]


def _hosted(model: HostedModel) -> list[dict[str, Any]]:
    """The entries of one of several models; what only its weights say is left out until it is loaded."""
    if model.service is not None:
        return [_entry(model.service, name) for name in _names(model.service)]
    fitted = model.fitted
    return [_listed(name, fitted.file, "") for name in _tagged([*fitted.names, *fitted.adapters])]


def _capabilities(service: Service) -> list[str]:
    if service.gives is not Gives.TEXT:
        return ["embedding"] if service.gives is Gives.VECTORS else []
    dialect = service.model.chat.dialect if service.model.chat is not None else None
    return [
        "completion",
        *(["insert"] if fills_in(service.model) else []),
        *(["vision"] if service.model.pictures is not None else []),
        *(["tools"] if dialect is not None and dialect.takes_tools else []),
        *(["thinking"] if dialect is not None and dialect.reasons else []),
    ]


def _entry(service: Service, name: str) -> dict[str, Any]:
    model, adapter = service.model, service.model.adapters.find(plain(service, name))
    digest = model.fingerprint if adapter is None else f"{model.fingerprint}-{adapter.name}"
    return _listed(name, model.file, digest)


def _listed(name: str, file: ModelFile, digest: str) -> dict[str, Any]:
    n, family = file.parameters, file.architecture
    return {
        "name": name,
        "model": name,
        "modified_at": time_text(datetime.fromtimestamp(file.created, UTC)),
        "size": file.size,
        "digest": digest,
        "details": {
            "parent_model": "",
            "format": "gguf",
            "family": family,
            "families": [family],
            "parameter_size": f"{n / 1e9:.1f}B" if n >= 10**9 else f"{n / 1e6:.1f}M",
            "quantization_level": file.quantization,
        },
    }


async def _pulled(service: Service, call: Call, name: str) -> AsyncGenerator[dict[str, Any]]:
    """What to tell while a model is downloaded. Raises `ApiError`."""
    if _is_served(service, name) or ANY_NAME in service.config.alias:
        yield {"status": "success"}
        return
    if not service.config.pulls:
        said = (
            f"the model {name[:80]!r} is not here, and this server downloads none; start it with --allow-pull, or"
            " run `zinc pull` on its machine"
        )
        raise ApiError(403, said, param="model", code="forbidden")
    service.check_admin(call)
    yield {"status": "pulling manifest"}
    loop, told = asyncio.get_running_loop(), asyncio.Queue[dict[str, Any] | ApiError | None](1 << 16)

    def tell(step: dict[str, Any] | ApiError | None) -> None:
        loop.call_soon_threadsafe(told.put_nowait, step)

    def work() -> None:
        from zinc_rt.hub.pull import pull

        last = 0.0

        def progress(done: int, total: int) -> None:
            nonlocal last
            if call.gone:
                raise ApiError(499, "the client is gone")
            if (now := monotonic()) - last >= _TELL_SECONDS or done == total:
                last = now
                tell({"status": f"pulling {name}", "digest": name, "total": total, "completed": done})

        try:
            pull(name.removesuffix(LATEST), progress=progress)
        except ZincError as error:
            tell(error if isinstance(error, ApiError) else ApiError(400, str(error), param="model", code="not_pulled"))
        except Exception:
            tell(ApiError(500, "the download failed; the server's log tells more", code="internal_error"))
            raise
        else:
            tell(None)

    service.background.thread("pull", work)
    while (step := await told.get()) is not None:
        if isinstance(step, ApiError):
            raise step
        yield step
    yield {"status": "success"}
