"""Anthropic's own client and a model; `tests/serving/api/test_clients.py` has the client by default."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import zinc_rt
from tests.serving.command import Command

if TYPE_CHECKING:  # imported where it is used: it takes seconds, which every worker would pay
    import anthropic
    from anthropic.types import MessageParam, ToolParam

pytestmark = pytest.mark.slow

ASK: list[MessageParam] = [{"role": "user", "content": "Tell me a story."}]
WEATHER: ToolParam = {
    "name": "weather",
    "description": "The weather of a town",
    "input_schema": {
        "type": "object",
        "properties": {"town": {"enum": ["Rome", "Oslo"]}},
        "required": ["town"],
        "additionalProperties": False,
    },
}


def client(server: Command) -> anthropic.Anthropic:
    import anthropic

    return anthropic.Anthropic(base_url=server.url, api_key="-", max_retries=0, timeout=60)


def test_messages(story: Command) -> None:
    import anthropic

    with zinc_rt.load() as model:
        told = model.chat([{"role": "system", "content": "Be brief."}, *ASK], seed=9, max_tokens=20).text
    with client(story) as c:
        whole = c.messages.create(
            model="story", max_tokens=20, messages=ASK, system="Be brief.", extra_body={"seed": 9}
        )
        assert isinstance(whole.content[0], anthropic.types.TextBlock)
        assert whole.content[0].text == told
        assert whole.stop_reason == "max_tokens"
        with c.messages.stream(
            model="story", max_tokens=20, messages=ASK, system="Be brief.", extra_body={"seed": 9}
        ) as stream:
            assert "".join(stream.text_stream) == told
            final = stream.get_final_message()
        # Cached tokens are counted apart, and the second request finds some.
        cached = final.usage.cache_read_input_tokens or 0
        first = whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0)
        counted = c.messages.count_tokens(model="story", messages=ASK, system="Be brief.")
        assert counted.input_tokens == final.usage.input_tokens + cached == first
        word = told.split()[3]
        stopped = c.messages.create(
            model="story",
            max_tokens=20,
            messages=ASK,
            system="Be brief.",
            stop_sequences=[word],
            extra_body={"seed": 9},
        )
        assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", word)
        with pytest.raises(anthropic.NotFoundError):
            c.messages.create(model="claude", max_tokens=5, messages=ASK)
        with pytest.raises(anthropic.BadRequestError, match="1024"):
            c.messages.create(model="story", max_tokens=5, messages=[{"role": "user", "content": "a fox " * 2000}])


def test_tools(caller: Command) -> None:
    import anthropic

    with client(caller) as c:
        with c.messages.stream(
            model="caller",
            max_tokens=200,
            messages=ASK,
            tools=[WEATHER],
            tool_choice={"type": "any", "disable_parallel_tool_use": True},
            extra_body={"seed": 1},
        ) as stream:
            asked = stream.get_final_message()
        call = asked.content[-1]
        assert isinstance(call, anthropic.types.ToolUseBlock)
        assert asked.stop_reason == "tool_use"
        assert call.input in ({"town": "Rome"}, {"town": "Oslo"})
        messages: list[MessageParam] = [
            *ASK,
            {"role": "assistant", "content": asked.content},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}]},
        ]
        end = c.messages.create(model="caller", max_tokens=4, messages=messages, tools=[WEATHER])
        assert end.usage.output_tokens == 4
