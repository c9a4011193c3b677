"""`EngineClient`: how callers on an event loop reach an engine, whether it runs on a thread or in a process."""

from __future__ import annotations

from typing import Protocol

from zinc_rt.scheduler.messages import (
    CancelReason,
    EngineInfo,
    EngineStatus,
    LoadAdapter,
    TenantShare,
    UnloadAdapter,
)
from zinc_rt.scheduler.output import RequestOutput, T
from zinc_rt.serving.request_log import LiveRequest


class EngineClient(Protocol):
    """An engine that serves requests. All methods belong to one event loop's thread and return at once, but for the
    coroutines.
    """

    async def start(self) -> EngineInfo:
        """Return once the engine has loaded its model. Raises what loading raises."""
        ...

    def submit(self, output: RequestOutput[T]) -> LiveRequest[T]:
        """Queue a request, and give its pieces: what its output makes of the events. The output is fed when they
        arrive, and may end the request. Closing it before its end cancels the request.
        """
        ...

    def cancel(self, request_id: str, reason: CancelReason = CancelReason.caller) -> None:
        """End a request soon; its iterator ends with `Finished`."""
        ...

    def share(self, tenant: TenantShare) -> None:
        """How a tenant is served from now on."""
        ...

    async def change_adapters(self, message: LoadAdapter | UnloadAdapter) -> None:
        """Load or unload an adapter; returns when it is done. Raises `AdapterRefused`; then all is as before."""
        ...

    @property
    def status(self) -> EngineStatus:
        """The engine's state after its last step."""
        ...

    @property
    def restarts(self) -> int:
        """Engines that were started in the place of one that had ended."""
        ...

    @property
    def healthy(self) -> str | None:
        """None while steps make progress, else what is wrong: loading, restarting, stuck."""
        ...

    async def close(self) -> None:
        """End the engine; requests that run end with `Failed`."""
        ...
