"""`EngineClient`: how callers on an event loop reach an engine, whether it runs on a thread or in a process."""

from __future__ import annotations

from typing import Protocol

from zinc_rt.scheduler.delivery import T, Text
from zinc_rt.scheduler.messages import CancelReason, EngineInfo, EngineStatus, Event, Submit, TenantShare
from zinc_rt.serving.live import EventStream


class EngineClient(Protocol):
    """An engine that serves requests. All methods belong to one event loop's thread and return at once, but for the
    coroutines.
    """

    async def start(self) -> EngineInfo:
        """Return once the engine has loaded its model. Raises what loading raises."""
        ...

    def submit(self, request: Submit) -> EventStream[Event]:
        """Queue a request; its events come from the stream, `Finished` or `Failed` last. Closing the stream before
        that cancels the request.
        """
        ...

    def submit_text(self, request: Submit, text: Text[T]) -> EventStream[T]:
        """As `submit`, with what a text makes of the events. It is fed when they arrive, and may end the request."""
        ...

    def cancel(self, request_id: str, reason: CancelReason = CancelReason.caller) -> None:
        """End a request soon; its iterator ends with `Finished`."""
        ...

    def share(self, tenant: TenantShare) -> None:
        """How a tenant is served from now on."""
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
