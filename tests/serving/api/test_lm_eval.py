"""The requests of lm-evaluation-harness (`local-completions`, `local-chat-completions`), as release 0.4.13 has them."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.serving.api.conftest import MakeBench

SCORE = {"model": "story", "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}
TELL = {"model": "story", "max_tokens": 12, "temperature": 0, "stop": ["."], "seed": 1234}
KEY = {"authorization": "Bearer "}
"""As it is sent where no key is known."""


def scores(choice: dict[str, Any], n_context: int) -> tuple[list[float], list[bool]]:
    """What is read of a choice: all behind the context but the last token, which is taken for the generated one."""
    found = choice["logprobs"]
    values, tops = found["token_logprobs"][n_context:-1], found["top_logprobs"][n_context:-1]
    return values, [value == max(top.values()) for value, top in zip(values, tops, strict=True)]


def test_it_tokenizes_by_the_server(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        info = (await b.http.get("/tokenizer_info")).json()
        tokenizer = b.service.model.tokenizer
        assert tokenizer.eos_id is not None
        assert info["eos_token"] == tokenizer.token_text(tokenizer.eos_id)
        assert "messages" in info["chat_template"]
        for text in ("test", info["eos_token"]):
            asked = {"prompt": text, "add_special_tokens": False}
            tokens = (await b.http.post("/tokenize", json=asked)).json()["tokens"]
            assert tokens == tokenizer.encode(text, add_special=False)
            back = (await b.http.post("/detokenize", json={"tokens": tokens})).json()
            assert back["prompt"] == text

    asyncio.run(go())


def test_continuations_are_scored(bench: MakeBench) -> None:
    """Each token of them has its value, also where the model would end the text behind it."""

    async def go() -> None:
        end = 0
        b = bench(stops=frozenset({end}))
        b.client.script = lambda request: [end]
        prompts = [[646, 674, 261, 451], [963, 287, 261, 469, end]]
        answer = await b.http.post("/v1/completions", json={**SCORE, "prompt": prompts}, headers=KEY)
        assert answer.status_code == 200, answer.text
        for choice, prompt in zip(answer.json()["choices"], prompts, strict=True):
            n = len(prompt)
            assert scores(choice, 3) == ([float(-i) for i in range(3, n)], [True] * (n - 3))
            assert len(choice["logprobs"]["tokens"]) == n + 1
        whole = await b.http.post("/v1/completions", json={**SCORE, "prompt": prompts[0], "max_tokens": 2})
        assert len(whole.json()["choices"][0]["logprobs"]["tokens"]) == 4  # a text that may go on ends there

    asyncio.run(go())


def test_texts_are_generated(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        prompts = [[646, 674, 261], [963, 287, 261, 469]]
        made = await b.http.post("/v1/completions", json={**TELL, "prompt": prompts, "stop": [".", "<|endoftext|>"]})
        assert [one["index"] for one in made.json()["choices"]] == [0, 1]
        assert [one.prompt for one in b.client.submitted] == [tuple(prompt) for prompt in prompts]
        chat = await b.http.post("/v1/chat/completions", json={**TELL, "messages": [{"role": "user", "content": "Hi"}]})
        assert chat.json()["choices"][0]["message"]["content"]

    asyncio.run(go())
