"""Streams that break off and go on: the client gets each event once, and the whole is what an unbroken stream is."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import httpx
import pytest

from tests.serving.api.conftest import Bench, MakeBench, without_ids

HELLO = [{"role": "user", "content": "Hi"}]
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": HELLO, "stream_options": {"include_usage": True}}),
    "chat-logprobs": ("/v1/chat/completions", {"messages": HELLO, "logprobs": True, "top_logprobs": 2}),
    "chat-several": ("/v1/chat/completions", {"messages": HELLO, "n": 2}),
    "chat-stop": ("/v1/chat/completions", {"messages": HELLO, "stop": ["owl"]}),
    "completions": ("/v1/completions", {"prompt": "Once", "echo": True}),
    "responses": ("/v1/responses", {"input": "Hi"}),
    "anthropic": ("/v1/messages", {"messages": HELLO, "max_tokens": 40}),
}


async def stream(bench: Bench, name: str, **headers: str) -> httpx.Response:
    path, body = REQUESTS[name]
    sent = {"model": "story", "stream": True, "max_tokens": 40, **body}
    if name == "responses":
        sent["max_output_tokens"] = sent.pop("max_tokens")
    return await bench.http.post(path, json=sent, headers={"x-zinc-tokens": "1", **headers})


def blocks(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return answer.text.split("\n\n")[:-1]


def id_of(block: str) -> str:
    return next(line.removeprefix("id: ") for line in block.split("\n") if line.startswith("id: "))


def tokens_of(blocks: list[str]) -> str:
    lines = [line for block in blocks for line in block.split("\n") if line.startswith(": tokens ")]
    return ",".join(line.removeprefix(": tokens ") for line in lines)


def ids(tokens: str) -> tuple[int, ...]:
    return tuple(map(int, tokens.split(","))) if tokens else ()


def shown(block: str) -> str:
    """An event without what may differ: comments, ids, and times of usage."""
    lines = [line for line in block.split("\n") if not line.startswith(":")]
    text = re.sub(r',"resumed_tokens":[1-9]\d*', "", "\n".join(lines))
    return without_ids(text + "\n").rstrip("\n")


@pytest.mark.parametrize("name", REQUESTS)
def test_a_stream_goes_on_behind_any_event(bench: MakeBench, name: str) -> None:
    async def test() -> None:
        made = bench()
        whole = blocks(await stream(made, name))
        assert len({id_of(block) for block in whole}) == len(whole) > 3
        first = made.client.submitted[0]
        for n in range(1, len(whole)):
            for tokens in (tokens_of(whole[:n]), ""):
                made.client.submitted.clear()
                said = {"last-event-id": id_of(whole[n - 1])} | ({"x-zinc-resume": tokens} if tokens else {})
                rest = blocks(await stream(made, name, **said))
                assert [id_of(block) for block in rest] == [id_of(block) for block in whole[n:]]
                assert [shown(block) for block in rest] == [shown(block) for block in whole[n:]]
                if name == "chat-stop" and "owl" in made.service.model.tokenizer.decode(ids(tokens)):
                    assert not made.client.submitted, "nothing is computed behind a stop string"
                    continue
                asked = made.client.submitted[-1]
                assert asked.seed - (name == "chat-several") == first.seed
                unused = not tokens or name == "chat-logprobs"
                assert asked.resume == (() if unused else ids(tokens))

    asyncio.run(test())


def test_a_server_knows_the_tokens_of_a_stream_that_its_client_left(bench: MakeBench) -> None:
    async def test() -> None:
        made = bench(gate=asyncio.Semaphore(6))
        reading = asyncio.create_task(stream(made, "chat"))
        while not made.service.running or made.client.gate._value != 0:
            await asyncio.sleep(0.01)
        call = next(iter(made.service.running.values()))
        await asyncio.sleep(0.05)
        event_id = f"{call.id}.{call.created}.{call.model}.{call.seed}.2"
        again = await stream(made, "chat", **{"last-event-id": event_id})  # before the server has noticed
        assert (again.status_code, again.json()["error"]["code"]) == (409, "still_running")
        with pytest.raises(Exception):  # noqa: B017  whatever the transport makes of it
            await reading
        made.client.gate = None
        resumed = blocks(await stream(made, "chat", **{"last-event-id": event_id}))
        assert made.client.submitted[-1].resume == tuple(made.client.script(made.client.submitted[0])[:6])
        fresh = blocks(await stream(made, "chat"))
        assert [json.loads(shown(b)[6:])["choices"] for b in resumed[:-2]] == [
            json.loads(shown(b)[6:])["choices"] for b in fresh[2:-2]
        ]

    asyncio.run(test())


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"last-event-id": "nonsense"}, {}, 400),
        ({"last-event-id": "chatcmpl-" + "a" * 24 + ".1.other.5.1"}, {}, 409),
        ({"last-event-id": "chatcmpl-" + "a" * 24 + ".1.{model}.99999999999999999999.1"}, {}, 400),
        ({"last-event-id": "msg_" + "a" * 24 + ".1.{model}.5.1"}, {}, 400),
        ({"last-event-id": "chatcmpl-" + "a" * 24 + ".1.{model}.5.1", "x-zinc-resume": "1,,2"}, {}, 400),
        ({"last-event-id": "chatcmpl-" + "a" * 24 + ".1.{model}.5.1"}, {"seed": 6}, 400),
        ({"last-event-id": "chatcmpl-" + "a" * 24 + ".1.{model}.5.1"}, {"seed": 5}, 200),
    ],
)
def test_what_cannot_be_resumed(bench: MakeBench, headers: dict[str, str], body: dict[str, Any], status: int) -> None:
    async def test() -> None:
        made = bench()
        answer = await made.http.post(
            "/v1/chat/completions",
            json={"messages": HELLO, "stream": True, **body},
            headers={name: value.replace("{model}", made.service.model.fingerprint) for name, value in headers.items()},
        )
        assert answer.status_code == status
        if status == 400:
            assert answer.json()["error"]["param"] in ("last-event-id", "x-zinc-resume", "seed", "n")

    asyncio.run(test())
