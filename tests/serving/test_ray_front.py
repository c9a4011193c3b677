"""The front on Ray without a cluster: replicas that refuse, end in the middle, or go on with a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from zinc_rt.ray.passed import Passed, Taken
from zinc_rt.ray.settings import Settings
from zinc_rt.serving.api.limits import Limits

pytest.importorskip("ray.serve")
exceptions = pytest.importorskip("ray.exceptions")

CHAT = "/v1/chat/completions"
EVENTS = (("content-type", "text/event-stream"),)


class Cut(Exception):
    """In a script: the replica ends here."""


class Replicas:
    """A handle of replicas that do as they are told: one script for each request that they are passed."""

    def __init__(self, *scripts: list[Any]) -> None:
        self.scripts, self.passed, self.cancelled = list(scripts), list[Passed](), 0

    def options(self, **_: Any) -> Replicas:
        """The same handle."""
        return self

    def remote(self, passed: Passed) -> Replicas:
        """Pass a request."""
        self.passed.append(passed)
        return self

    def cancel(self) -> None:
        """The front wants no more of it."""
        self.cancelled += 1

    async def __aiter__(self) -> AsyncIterator[Any]:
        for item in self.scripts.pop(0):
            if item is Cut:
                raise exceptions.RayActorError
            await asyncio.sleep(0)
            yield item


def start(status: int = 200, *headers: tuple[str, str]) -> dict[str, Any]:
    """The first message of an answer."""
    return {"type": "http.response.start", "status": status, "headers": [(k.encode(), v.encode()) for k, v in headers]}


def part(body: str, more: bool = True) -> dict[str, Any]:
    """A later one."""
    return {"type": "http.response.body", "body": body.encode(), "more_body": more}


def ask(replicas: Replicas, path: str = CHAT, *, stream: bool = False, **headers: str) -> httpx.Response:
    """One request to a front before these replicas."""
    from zinc_rt.ray.front import Front

    async def go() -> httpx.Response:
        front: Any = Front(replicas, Settings())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(front.answer), base_url="http://x") as http:
            return await http.post(path, json={"stream": stream}, headers=headers)

    return asyncio.run(go())


def test_an_answer_passes_with_the_name_of_its_replica() -> None:
    replicas = Replicas([Taken("a"), [start(200, ("x-one", "1")), part("{", True)], [part("}", False)]])
    answer = ask(replicas)
    assert (answer.status_code, answer.text) == (200, "{}")
    assert (answer.headers["x-one"], answer.headers["x-zinc-replica"]) == ("1", "a")
    assert replicas.cancelled == 1
    assert (replicas.passed[0].path, replicas.passed[0].body) == (CHAT, b'{"stream":false}')


def test_a_refusal_goes_to_another_replica_once() -> None:
    busy = [start(503, ("retry-after", "5"), ("x-should-retry", "true")), part("busy", False)]
    replicas = Replicas([Taken("a"), busy], [Taken("b"), [start(), part("fine", False)]])
    assert ask(replicas).text == "fine"
    assert [passed.avoid for passed in replicas.passed] == [(), ("a",)]
    answer = ask(Replicas([Taken("a"), busy], [Taken("a"), busy]))  # the only one
    assert (answer.status_code, answer.text, answer.headers["retry-after"]) == (503, "busy", "5")


def test_a_refusal_that_repeating_does_not_help_is_the_answer() -> None:
    answer = ask(Replicas([Taken("a"), [start(500, ("x-should-retry", "false")), part("no", False)]]))
    assert (answer.status_code, answer.text) == (500, "no")


def test_what_one_replica_does_not_know_another_may() -> None:
    unknown = [start(404, ("x-should-retry", "false")), part("unknown", False)]
    replicas = Replicas([Taken("a"), unknown], [Taken("b"), [start(), part("known", False)]])
    assert ask(replicas, "/v1/zinc/requests/req-1").text == "known"
    assert ask(Replicas([Taken("a"), unknown], [Taken("a"), unknown]), "/v1/zinc/requests/req-1").status_code == 404
    assert ask(Replicas([Taken("a"), unknown]), "/v1/nothing").status_code == 404


def test_a_replica_that_ends_before_its_answer_does_is_replaced() -> None:
    replicas = Replicas([Cut], [Taken("a"), [start(), part("ha")], Cut], [Taken("b"), [start(), part("whole", False)]])
    assert ask(replicas).text == "whole"


def test_it_gives_up_where_every_replica_ends() -> None:
    answer = ask(Replicas(*([Cut] for _ in range(5))))
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "replica_lost")


def test_a_stream_that_cannot_move_ends_with_an_error_event() -> None:
    begun = [Taken("a"), [start(200, *EVENTS), part("data: 1\n\nda")], Cut]
    answer = ask(Replicas(begun), stream=True)
    assert answer.status_code == 200
    first, last = answer.text.split("\n\n", 1)
    assert first == "data: 1"
    assert last.startswith('data: {"error":{')
    assert '"replica_lost"' in last
    assert last.endswith("}\n\n")
    answer = ask(Replicas(begun), "/v1/messages", stream=True)
    assert answer.text.startswith('data: 1\n\nevent: error\ndata: {"type":"error"')


def test_a_stream_goes_on_behind_its_last_event() -> None:
    first = [
        Taken("a"),
        [start(200, *EVENTS), part("id: 0\n: tokens 5,6\ndata: x\n\nid: 1\n: tokens 7\ndata: y\n\nid:")],
        Cut,
    ]
    second = [
        Taken("b"),
        [start(200, *EVENTS)],
        [part("id: 2\n: tokens 8\ndata: z\n\n")],
        [part("data: [DONE]\n\n", False)],
    ]
    replicas = Replicas(first, second)
    answer = ask(replicas, stream=True, **{"last-event-id": "given", "x-zinc-resume": "1"})
    assert answer.text == "id: 0\ndata: x\n\nid: 1\ndata: y\n\nid: 2\ndata: z\n\ndata: [DONE]\n\n"
    said = [{k: v for k, v in passed.headers if k.startswith((b"last", b"x-zinc"))} for passed in replicas.passed]
    assert said == [
        {b"last-event-id": b"given", b"x-zinc-resume": b"1", b"x-zinc-tokens": b"1"},
        {b"last-event-id": b"1", b"x-zinc-resume": b"5,6,7", b"x-zinc-tokens": b"1"},
    ]


def test_a_stream_that_the_next_replica_does_not_take_ends_with_an_error_event() -> None:
    first = [Taken("a"), [start(200, *EVENTS), part("id: 0\ndata: x\n\n")], Cut]
    refused = [Taken("b"), [start(409), part("no", False)]]
    answer = ask(Replicas(first, *[refused] * 4), stream=True)
    assert answer.text.startswith('id: 0\ndata: x\n\ndata: {"error":{')


def test_a_body_that_is_too_large_reaches_no_replica() -> None:
    from zinc_rt.ray.front import Front

    replicas: Any = Replicas()

    async def go() -> httpx.Response:
        front = Front(replicas, Settings())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(front.answer), base_url="http://x") as http:
            return await http.post(CHAT, content=b"x" * (Limits().body(pictures=True) + 1))

    answer = asyncio.run(go())
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
    assert replicas.passed == []


def test_no_replica_counts_for_all() -> None:
    assert ask(Replicas(), "/metrics").status_code == 404


def test_a_replica_is_given_time_to_load_again() -> None:
    from zinc_rt.errors import ZincError
    from zinc_rt.ray.replica import Patience

    times = iter((0.0, 119.0, 121.0, 240.0, 241.0))
    patience = Patience(lambda: next(times))
    for state in ("loading", "loading", None, "loading", "loading"):
        patience.check(state)
    with pytest.raises(ZincError, match="unwell for 120 s: loading"):
        patience.check("loading")
