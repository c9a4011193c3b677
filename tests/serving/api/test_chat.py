"""Chat completions, whole and as streams."""

from __future__ import annotations

import asyncio

from tests.serving.api.conftest import SAYS, MakeBench, events


def test_a_whole_answer(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        answer = await b.chat(seed=7)
        assert answer.status_code == 200, answer.text
        body = answer.json()
        (choice,) = body["choices"]
        assert choice["message"] == {"role": "assistant", "content": SAYS, "refusal": None}
        assert choice["finish_reason"] == "length"
        assert choice["logprobs"] is None
        (request,) = b.client.submitted
        ids = b.service.model.tokenizer.encode(SAYS, add_special=False)
        assert body["usage"]["prompt_tokens"] == len(request.prompt)
        assert body["usage"]["completion_tokens"] == len(ids)
        assert body["usage"]["total_tokens"] == len(ids) + len(request.prompt)
        assert body["object"] == "chat.completion"
        assert body["model"] == "story"
        assert body["id"] == request.id == answer.headers["x-request-id"]
        assert answer.headers["x-zinc-seed"] == "7"
        assert request.seed == 7

    asyncio.run(go())


def test_a_stream(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        answer = await b.chat(stream=True, stream_options={"include_usage": True})
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["x-accel-buffering"] == "no"
        chunks = events(answer.text)
        assert {(c["id"], c["created"], c["model"], c["object"]) for c in chunks} == {
            (chunks[0]["id"], chunks[0]["created"], "story", "chat.completion.chunk")
        }
        assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
        *texts, end, usage = chunks[1:]
        assert "".join(c["choices"][0]["delta"]["content"] for c in texts) == SAYS
        assert end["choices"][0]["delta"] == {}
        assert end["choices"][0]["finish_reason"] == "length"
        assert usage["choices"] == []
        assert (
            usage["usage"]["completion_tokens"] == b.service.model.tokenizer.encode(SAYS, add_special=False).__len__()
        )

    asyncio.run(go())
