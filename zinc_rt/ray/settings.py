"""`Settings`: the settings of an application on Ray, checked before Ray is called."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from zinc_rt.errors import UsageError
from zinc_rt.serving.api.config import ServerConfig
from zinc_rt.serving.api.start import EngineChoice
from zinc_rt.serving.api.web import WebRule

Count = Annotated[int, Meta(ge=1)]
Amount = Annotated[float, Meta(ge=0)]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model and options of every replica, and the number of replicas. Files must be on each machine under the same
    path.

    Args:
        model: GGUF file; None serves the model in the package.
        options: of `zinc_rt.load`, as `device`, `n_ctx` or `kv_memory` (bytes).
        parallel: requests that a replica computes at once; others wait in it. Ray adds replicas while there are more
            requests than this for each.
        max_step_ms: milliseconds of a step while texts are generated; None as `zinc serve` has it.
        alias: names of the model in requests and answers, with commas between them; None takes the file's.
        api_key_file, tenants: as for `zinc serve`.
        allow_host, cors: names of hosts and origins of web pages, as for `zinc serve`.
        strict: refuse fields of requests that are not known or would be ignored.
        min_replicas, max_replicas: bounds between which Ray scales.
        upscale_delay, downscale_delay: seconds for which there must be too few or too many replicas.
        cpus, gpus: what Ray reserves for a replica on its machine.
        per_machine: replicas that may share a machine; None sets no bound.
        fronts: processes that pass requests to the replicas.
        drain: seconds that running requests get where a replica is to end.
    """

    model: str | None = None
    options: dict[str, Any] = {}
    parallel: Count = 16
    max_step_ms: float | None = None
    alias: str | None = None
    api_key_file: str | None = None
    tenants: str | None = None
    allow_host: list[str] = []
    cors: list[str] = []
    strict: bool = False
    min_replicas: Count = 1
    max_replicas: Count = 1
    upscale_delay: Amount = 10.0
    downscale_delay: Amount = 300.0
    cpus: Amount = 1.0
    gpus: Amount = 0.0
    per_machine: Annotated[int, Meta(ge=1, le=100)] | None = None
    fronts: Count = 1
    drain: Amount = 30.0

    @property
    def config(self) -> ServerConfig:
        """A replica's, as a command line would give it. A replica has no address: Ray Serve listens."""
        names = tuple(name.strip() for name in self.alias.split(",")) if self.alias is not None else ()
        return ServerConfig(
            keys=None if self.api_key_file is None else Path(self.api_key_file),
            tenants=None if self.tenants is None else Path(self.tenants),
            strict=self.strict,
            drain=self.drain,
            alias=names,
            web=WebRule.of("127.0.0.1", self.allow_host, self.cors),
        )

    @property
    def choice(self) -> EngineChoice:
        """A replica's engine, in a process of its own."""
        return EngineChoice(
            path=None if self.model is None else Path(self.model),
            options={**self.options, "n_slots": self.parallel},
            core={} if self.max_step_ms is None else {"max_step_ms": self.max_step_ms},
        )


def read_settings(settings: Mapping[str, Any]) -> Settings:
    """Check them. Raises `UsageError`."""
    try:
        found = msgspec.convert(dict(settings), Settings, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"settings of zinc_rt.ray: {error}") from None
    if found.min_replicas > found.max_replicas:
        raise UsageError(f"min_replicas is {found.min_replicas}; it must be at most max_replicas, {found.max_replicas}")
    if "n_slots" in found.options:
        raise UsageError("options has n_slots; say parallel in its place")
    if found.alias is not None and not all(found.config.alias):
        raise UsageError(f"alias is {found.alias!r}; it must be names with commas between them")
    try:
        _ = found.config
    except UsageError as error:
        raise UsageError(f"settings of zinc_rt.ray: {error}") from None
    return found
