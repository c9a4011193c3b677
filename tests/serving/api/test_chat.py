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


TALK = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "There was "}]


def test_a_last_message_of_the_assistant_is_continued(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench(" a fox")

        async def prompt(path: str = "chat/completions", **fields: object) -> str:
            answer = await b.http.post(f"/v1/{path}", json={"messages": TALK, "max_tokens": 9, **fields})
            assert answer.status_code == 200, answer.text
            body = answer.json()
            text = body["choices"][0]["message"]["content"] if "choices" in body else body["content"][0]["text"]
            assert text == " a fox"
            return b.service.model.tokenizer.decode(b.client.submitted[-1].prompt)

        begun = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nThere was "
        assert await prompt() == begun
        assert await prompt("messages") == begun
        assert await prompt(continue_final_message=True, add_generation_prompt=False) == begun
        closed = begun + "<|im_end|>\n"
        assert await prompt(add_generation_prompt=False) == closed
        assert await prompt(continue_final_message=False) == closed + "<|im_start|>assistant\n"
        assert await prompt(add_generation_prompt=True) == closed + "<|im_start|>assistant\n"
        counted = await b.http.post("/v1/messages/count_tokens", json={"messages": TALK})
        assert counted.json()["input_tokens"] == len(b.service.model.tokenizer.encode(begun, add_special=False))
        items = await b.http.post("/v1/responses", json={"input": TALK})
        assert items.status_code == 200
        assert b.client.submitted[-1].prompt == b.client.submitted[-2].prompt  # an item is whole

    asyncio.run(go())


def test_what_cannot_be_continued(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        for wrong, param in (
            ({"messages": TALK[:1], "continue_final_message": True}, "continue_final_message"),
            (
                {"messages": TALK, "continue_final_message": True, "add_generation_prompt": True},
                "add_generation_prompt",
            ),
            ({"messages": TALK, "response_format": {"type": "json_object"}}, "response_format"),
        ):
            refused = await b.chat(**wrong)
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)

    asyncio.run(go())
