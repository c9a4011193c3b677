"""From tokens to text: stop strings and characters cut anywhere, and fields and their documentation."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zinc_rt.dialects.deltas import ContentDelta
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.scheduler.messages import Event, Finished, FinishReason, Submit, Token, Usage
from zinc_rt.serving.api import fields
from zinc_rt.serving.api.anthropic import CountRequest, MessagesRequest
from zinc_rt.serving.api.chat_common import ChatRequest
from zinc_rt.serving.api.choice import AnswerChoice, ChoiceDelta
from zinc_rt.serving.api.completions import CompletionRequest
from zinc_rt.serving.api.embeddings import EmbeddingRequest
from zinc_rt.serving.api.fields import ApiField, FieldRule, table
from zinc_rt.serving.api.rerank import RerankRequest
from zinc_rt.serving.api.responses import ResponsesRequest
from zinc_rt.serving.api.served_model import ServedModel

PAGE = Path(__file__).parents[3] / "docs" / "use" / "openai.md"


@given(
    text=st.text("ab é🦉\n", max_size=30),
    stops=st.lists(st.text("ab é🦉", min_size=1, max_size=4), max_size=3),
)
def test_text_and_log_probabilities_up_to_a_stop_string(served: ServedModel, text: str, stops: list[str]) -> None:
    """What is shown is the text before the first stop string that is complete; the tokens shown cover it."""
    ids = served.tokenizer.encode(text, add_special=False)
    choice = AnswerChoice(0, Submit("r", (1,), SamplingParams(), 0), served.tokenizer, stops)
    events: list[Event] = [Token("r", i, -1.0) for i in ids]
    events.append(Finished("r", FinishReason.length, Usage(1)))
    pieces = [piece for event in events for piece in choice.take(event) if isinstance(piece, ChoiceDelta)]
    shown = "".join(d.text for piece in pieces for d in piece.deltas if isinstance(d, ContentDelta))
    ends = sorted((at + len(stop), -len(stop), at) for stop in stops if (at := text.find(stop)) >= 0)
    assert shown == (text[: ends[0][2]] if ends else text)
    assert (choice.stop is not None) == bool(ends)
    tokens = [lp.token_id for piece in pieces for lp in piece.logprobs]
    assert tokens == ids[: len(tokens)]
    covered = b"".join(map(served.tokenizer.token_bytes, tokens))
    assert covered.startswith(shown.encode())
    if not ends:
        assert covered == text.encode()


TABLES = {
    "/v1/chat/completions": (fields.CHAT, [ChatRequest]),
    "/v1/completions": (fields.COMPLETIONS, [CompletionRequest]),
    "/v1/responses": (fields.RESPONSES, [ResponsesRequest]),
    "/v1/messages": (fields.ANTHROPIC, [MessagesRequest, CountRequest]),
    "/v1/embeddings": (fields.EMBEDDINGS, [EmbeddingRequest]),
    "/v1/rerank": (fields.RERANK, [RerankRequest]),
}


@pytest.mark.parametrize("path", TABLES)
def test_the_fields_that_are_obeyed_are_those_that_are_read(path: str) -> None:
    records, (kind, *_) = TABLES[path]
    obeyed = {field.name for field in records if field.rule is FieldRule.obeyed}
    assert obeyed == set(kind.__struct_fields__)
    assert len({field.name for field in records}) == len(records)


@pytest.mark.parametrize("path", TABLES)
def test_the_page_has_the_table_of_the_code(path: str) -> None:
    records, _ = TABLES[path]
    section = PAGE.read_text().split(f"## `POST {path}`\n", 1)[1].split("\n## ", 1)[0]
    assert table(records) in section


def test_every_field_of_the_chat_requests_is_known() -> None:
    own = {field.name for field in fields.CHAT if field.own}
    assert len(fields.CHAT) - len(own) == 37
    assert isinstance(fields.CHAT[0], ApiField)
