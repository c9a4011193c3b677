"""Responses that are kept and gone on from, and what of a request is left out and named."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.serving.api.conftest import SAYS, Bench, MakeBench
from tests.serving.api.test_endpoints import named_events
from tests.serving.api.test_tools import TOOLS, MakeCaller, caller, calls  # noqa: F401  fixtures
from zinc_rt.serving.api.config import ServerConfig
from zinc_rt.serving.api.keys import add_key, read_keys
from zinc_rt.serving.api.responses_store import ResponseStore

FUNCTIONS = [{"type": "function", **tool["function"]} for tool in TOOLS]
NAMESPACE = {"type": "namespace", "name": "clock", "description": "", "tools": FUNCTIONS}


async def respond(b: Bench, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
    return await b.http.post("/v1/responses", json={"input": "Hi", **fields}, headers=headers)


def prompt(b: Bench) -> str:
    return b.service.model.tokenizer.decode(b.client.submitted[-1].prompt)


def test_a_response_goes_on_from_a_kept_one(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench(n_ctx=512)
        b.service.model = dataclasses.replace(b.service.model, n_ctx=512)
        first = (await respond(b, instructions="Be brief.", max_output_tokens=30)).json()
        assert first["store"] is True
        for stream in (False, True):
            answer = await respond(b, input="And then?", previous_response_id=first["id"], stream=stream)
            assert answer.status_code == 200, answer.text
            second = named_events(answer.text)[-1][1]["response"] if stream else answer.json()
            assert second["previous_response_id"] == first["id"]
            told = first["output"][0]["content"][0]["text"]
            said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": told}]
            await b.http.post(
                "/v1/chat/completions", json={"messages": [*said, {"role": "user", "content": "And then?"}]}
            )
            assert b.client.submitted[-1].prompt == b.client.submitted[-2].prompt
        # A third one goes on from the second, which went on from the first.
        await respond(b, input=[{"role": "user", "content": "Why?"}], previous_response_id=second["id"])
        assert [prompt(b).count(word) for word in ("Hi", "And then?", "Why?", "Be brief.")] == [1, 1, 1, 0]

    asyncio.run(go())


def test_kept_responses_are_read_and_deleted(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        made = (await respond(b)).json()
        at = f"/v1/responses/{made['id']}"
        assert (await b.http.get(at)).json() == made
        assert (await b.http.get(at, params={"stream": "true"})).status_code == 400
        assert (await b.http.delete(at)).json() == {"id": made["id"], "object": "response", "deleted": True}
        for gone in (await b.http.get(at), await b.http.delete(at), await b.http.get(f"{at}/input_items")):
            assert (gone.status_code, gone.json()["error"]["code"]) == (404, "response_not_found")
        after = await respond(b, previous_response_id=made["id"])
        assert (after.status_code, after.json()["error"]["code"]) == (400, "previous_response_not_found")
        unkept = (await respond(b, store=False)).json()
        assert unkept["store"] is False
        assert (await b.http.get(f"/v1/responses/{unkept['id']}")).status_code == 404

    asyncio.run(go())


def test_the_items_of_an_input_come_in_pages(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        items = [{"role": "user", "content": word} for word in "abcde"]
        at = f"/v1/responses/{(await respond(b, input=items)).json()['id']}/input_items"
        page = (await b.http.get(at, params={"limit": "2"})).json()
        assert ([item["content"] for item in page["data"]], page["has_more"]) == (["e", "d"], True)
        assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][1]["id"])
        more = (await b.http.get(at, params={"limit": "9", "after": page["last_id"]})).json()
        assert ([item["content"] for item in more["data"]], more["has_more"]) == (["c", "b", "a"], False)
        upwards = (await b.http.get(at, params={"order": "asc"})).json()
        assert [item["content"] for item in upwards["data"]] == list("abcde")
        for wrong in ({"limit": "0"}, {"limit": "x"}, {"order": "up"}, {"after": "msg_1"}):
            assert (await b.http.get(at, params=wrong)).status_code == 400

    asyncio.run(go())


def test_references_are_what_they_refer_to(calls: MakeCaller) -> None:  # noqa: F811
    async def go() -> None:
        b = calls()
        output = (await respond(b, tools=FUNCTIONS, seed=1)).json()["output"]
        result = {"type": "function_call_output", "call_id": output[2]["call_id"], "output": "12 degrees"}
        user = {"role": "user", "content": "Hi"}
        assert (await respond(b, input=[user, *output, result], tools=FUNCTIONS)).status_code == 200
        references = [{"type": "item_reference", "id": item["id"]} for item in output]
        assert (await respond(b, input=[user, *references, result], tools=FUNCTIONS)).status_code == 200
        assert b.client.submitted[-1].prompt == b.client.submitted[-2].prompt
        lost = await respond(b, input=[{"type": "item_reference", "id": "msg_0"}])
        assert (lost.status_code, lost.json()["error"]["param"]) == (400, "input[0]")

    asyncio.run(go())


def test_tenants_do_not_see_each_others_responses(bench: MakeBench, tmp_path: Path) -> None:
    async def go() -> None:
        path = tmp_path / "keys"
        mine, other = ({"authorization": f"Bearer {add_key(path, name)}"} for name in ("mine", "other"))
        b = bench(keys=read_keys(path))
        made = (await respond(b, mine)).json()
        at = f"/v1/responses/{made['id']}"
        assert (await b.http.get(at, headers=mine)).status_code == 200
        assert (await b.http.get(at, headers=other)).status_code == 404
        assert (await b.http.delete(at, headers=other)).status_code == 404
        assert (await respond(b, other, previous_response_id=made["id"])).status_code == 400
        reference = [{"type": "item_reference", "id": made["output"][0]["id"]}]
        assert (await respond(b, other, input=reference)).status_code == 400

    asyncio.run(go())


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 300)), max_size=40))
def test_the_store_keeps_what_it_has_room_for(steps: list[tuple[str, int, int]]) -> None:
    """However responses come and go, they have no more bytes than the limit, and the newest that fits is there."""
    store, limit = ResponseStore(1000), 1000
    for tenant, number, size in steps:
        name = f"resp_{number}"
        if number == 0:
            store.drop(tenant, name)
            assert store.get(tenant, name) is None
            continue
        store.keep(tenant, {"id": name, "output": [], "text": "x" * size}, [])
        newest = store.get(tenant, name)
        kept = [one for t in "abc" for n in range(10) if (one := store.get(t, f"resp_{n}"))]
        assert sum(one.size for one in kept) <= limit
        mine = sum(one.size for n in range(10) if (one := store.get(tenant, f"resp_{n}")))
        assert newest is not None
        assert mine >= newest.size


def test_tools_of_other_types_are_skipped_and_named(calls: MakeCaller) -> None:  # noqa: F811
    async def go() -> None:
        b = calls()
        web = {"type": "web_search", "external_web_access": False}
        answer = await respond(b, tools=[NAMESPACE, FUNCTIONS[0], web, web, {"type": "custom", "name": "x"}], seed=1)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-zinc-ignored"] == "tools.namespace, tools.web_search, tools.custom"
        assert b.log[-1]["ignored"] == ["tools.namespace", "tools.web_search", "tools.custom"]
        assert prompt(b).startswith("weather user: Hi")
        only = await respond(b, tools=[web], client_metadata={}, tool_choice="auto")
        assert only.status_code == 200
        assert only.headers.get_list("x-zinc-ignored") == ["client_metadata", "tools.web_search"]
        forced = await respond(b, tools=[web], tool_choice={"type": "web_search"})
        assert (forced.status_code, forced.json()["error"]["param"]) == (400, "tool_choice")

    asyncio.run(go())


def test_items_that_set_something_and_items_of_other_types(calls: MakeCaller) -> None:  # noqa: F811
    async def go() -> None:
        b = calls()
        items = [
            {"type": "additional_tools", "role": "developer", "tools": [NAMESPACE, FUNCTIONS[1]]},
            {"type": "message", "role": "user", "content": "Hi"},
            {"type": "configuration_update", "reasoning": {"effort": "low"}},
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        ]
        answer = await respond(b, input=items, reasoning={"effort": "high"}, seed=1)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-zinc-ignored"] == "input.web_search_call, tools.namespace"
        assert prompt(b).startswith("time user: Hi")
        assert "low" in prompt(b)
        wrong = await respond(b, input=[{"type": "additional_tools", "tools": "x"}, *items[1:]])
        assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "input[0].tools")

    asyncio.run(go())


def test_strict_servers_skip_nothing(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench(config=ServerConfig(strict=True))
        web = {"type": "web_search_20250305", "name": "web_search"}
        hi = [{"role": "user", "content": "Hi"}]
        for path, body in (("responses", {"input": "Hi"}), ("messages", {"messages": hi, "max_tokens": 5})):
            refused = await b.http.post(f"/v1/{path}", json={**body, "tools": [web]})
            assert refused.status_code == 400
            assert "tools[0]" in refused.json()["error"]["message"]

    asyncio.run(go())


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_tools_of_anthropics_servers_are_skipped_and_named(calls: MakeCaller, path: str) -> None:  # noqa: F811
    async def go() -> None:
        b = calls()
        web = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
        own = {"name": "weather", "input_schema": {"type": "object"}}
        ask = {"messages": [{"role": "user", "content": "Hi"}]} | ({"max_tokens": 5} if path[-1] == "s" else {})
        plain = await b.http.post(path, json={**ask, "tools": [own]})
        answer = await b.http.post(path, json={**ask, "tools": [web, own, {"type": "bash_20250124", "name": "bash"}]})
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-zinc-ignored"] == "tools.web_search_20250305, tools.bash_20250124"
        if path.endswith("count_tokens"):
            assert answer.json() == plain.json()
        assert (await b.http.post(path, json={**ask, "tools": [{"name": "weather"}]})).status_code == 400

    asyncio.run(go())


def test_instructions_may_stand_among_anthropics_messages(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        messages = [{"role": "user", "content": "Hi"}, {"role": "system", "content": [{"type": "text", "text": "No."}]}]
        answer = await b.http.post("/v1/messages", json={"max_tokens": 5, "messages": messages})
        assert answer.status_code == 200, answer.text
        assert "system\nNo." in prompt(b)

    asyncio.run(go())


@pytest.mark.parametrize("as_blocks", [False, True])
def test_only_the_line_about_billing_is_dropped(bench: MakeBench, as_blocks: bool) -> None:
    async def go() -> None:
        b = bench()
        text = "x-anthropic-billing-header: a=1;\n\nBe brief.\nBe kind."
        system = [{"type": "text", "text": text}] if as_blocks else text
        ask = {"max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
        answer = await b.http.post("/v1/messages", json={**ask, "system": system})
        assert answer.headers["x-zinc-dropped"] == "billing-header"
        await b.http.post("/v1/messages", json={**ask, "system": "Be brief.\nBe kind."})
        assert b.client.submitted[0].prompt == b.client.submitted[1].prompt

    asyncio.run(go())


def test_the_oldest_turns_are_left_out_where_that_is_asked_for(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        turns = [{"role": role, "content": f"{n}"} for n in range(100, 120) for role in ("user", "assistant")]
        items = [*turns, {"role": "user", "content": "Why?"}]
        fields: dict[str, Any] = {"instructions": "Be brief.", "max_output_tokens": 8}
        refused = await respond(b, input=items, **fields)
        assert refused.json()["error"]["code"] == "context_length_exceeded"
        answer = await respond(b, input=items, truncation="auto", **fields)
        assert answer.status_code == 200, answer.text
        assert answer.json()["truncation"] == "auto"
        dropped = int(answer.headers["x-zinc-dropped"].removeprefix("messages="))
        rest = [{"role": "system", "content": "Be brief."}, *items[dropped:]]
        assert (await b.chat(messages=rest)).status_code == 200
        assert b.client.submitted[-1].prompt == b.client.submitted[-2].prompt
        assert len(b.client.submitted[-1].prompt) < 64 - 8
        # One turn more, and the answer had not its room.
        counted = await b.http.post("/tokenize", json={"messages": [rest[0], *items[dropped - 2 :]]})
        assert counted.json()["count"] >= 64 - 8
        whole = await respond(b, truncation="auto", **fields)
        assert "x-zinc-dropped" not in whole.headers
        long = await respond(b, input="fox " * 200, truncation="auto")
        assert long.json()["error"]["code"] == "context_length_exceeded"

    asyncio.run(go())


def test_a_websocket_is_refused_with_the_word_to_do_without(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        headers = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-key": "x"}
        assert (await b.http.get("/v1/responses", headers=headers)).status_code == 426
        assert (await b.http.get("/v1/responses")).status_code == 405

    asyncio.run(go())


def test_a_stream_is_kept_as_it_ended(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        last = named_events((await respond(b, stream=True)).text)[-1][1]["response"]
        kept = await b.http.get(f"/v1/responses/{last['id']}")
        assert kept.json() == last
        assert SAYS in json.dumps(last, ensure_ascii=False)

    asyncio.run(go())
