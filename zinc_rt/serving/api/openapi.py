"""`document`: the interface in OpenAPI's form, made of the structs that requests are decoded into."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

import zinc_rt
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.fields import ApiField
from zinc_rt.serving.api.service import Naming, Service

Handler = Callable[[Service, Call], Awaitable[None]]

_REF: Final = "#/components/schemas/{name}"
_KEYS: Final = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}
_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint. public: without a key. counted: its requests are logged and counted. body: what a request's body is
    decoded into; fields: the records of its fields. of_model: it asks something of one model; by default where it has a
    body. naming: how it names the model, None for the usual way. loads: that model is loaded for it; False where its
    file is enough.
    """

    method: str
    path: str
    handler: Handler
    public: bool = False
    counted: bool = True
    body: type[msgspec.Struct] | None = None
    fields: Sequence[ApiField] = ()
    of_model: bool | None = None
    naming: Naming | None = None
    loads: bool = True

    def __post_init__(self) -> None:
        """Fill in `of_model`."""
        if self.of_model is None:
            object.__setattr__(self, "of_model", self.body is not None)

    @property
    def streams(self) -> bool:
        """Whether it can answer with server-sent events."""
        return self.body is not None and "stream" in self.body.__struct_fields__ and not self.path.startswith("/api/")


def document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """The description of these endpoints, OpenAPI 3.1."""
    shown = list(endpoints)
    bodies = {e.body: e.fields for e in shown if e.body is not None}
    made, components = msgspec.json.schema_components(bodies, ref_template=_REF)
    names = {body: schema["$ref"].rpartition("/")[2] for body, schema in zip(bodies, made, strict=True)}
    for body, fields in bodies.items():
        components[names[body]].pop("description", None)
        properties = components[names[body]]["properties"]
        for field in fields:
            if field.name in properties:
                properties[field.name]["description"] = field.note
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in shown:
        name = names[endpoint.body] if endpoint.body is not None else None
        streams = name is not None and "stream" in components[name]["properties"]
        path = endpoint.path.replace(":path}", "}")
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, name, streams)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "zinc",
            "version": zinc_rt.__version__,
            "description": "docs/use/openai.md says what each field does.",
        },
        "security": [{name: []} for name in _KEYS],
        "paths": paths,
        "components": {"schemas": {**components, "Error": _ERROR}, "securitySchemes": _KEYS},
    }


def _operation(endpoint: Endpoint, body: str | None, streams: bool) -> dict[str, Any]:
    kinds = ["application/json", *(["text/event-stream"] if streams else [])]
    error = {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}}
    made: dict[str, Any] = {
        "summary": inspect.getdoc(endpoint.handler),
        "responses": {
            "200": {"description": "the answer", "content": {kind: {} for kind in kinds}},
            "default": {"description": "an error", "content": error},
        },
    }
    if names := re.findall(r"{(\w+)", endpoint.path):
        made["parameters"] = [{"name": n, "in": "path", "required": True, "schema": {"type": "string"}} for n in names]
    if body is not None:
        schema = {"$ref": _REF.format(name=body)}
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if endpoint.public:
        made["security"] = []
    return made
