"""The vocabulary and the chat template of the model in the package."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import zinc_rt
from zinc_rt.gguf import GGUFFile
from zinc_rt.text import ChatTemplate, Detokenizer, Tokenizer


@cache
def shipped() -> tuple[Tokenizer, ChatTemplate]:
    with GGUFFile.open(Path(str(files("zinc_rt"))) / "data" / "zinc-story.gguf") as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
        return tokenizer, ChatTemplate.from_metadata(file.metadata, tokenizer)


def test_the_vocabulary_can_express_every_byte() -> None:
    tokenizer, _ = shipped()
    single = {tokenizer.token_bytes(i) for i in range(tokenizer.n_vocab)}
    assert {bytes([byte]) for byte in range(256)} <= single


@given(text=st.text())
@settings(max_examples=100, deadline=None)
def test_text_comes_back(text: str) -> None:
    tokenizer, _ = shipped()
    ids = tokenizer.encode(text, add_special=False, parse_special=False)
    assert tokenizer.decode(ids) == text
    stream = Detokenizer(tokenizer)
    assert "".join(map(stream.add, ids)) + stream.flush() == text


def test_a_story_takes_few_tokens() -> None:
    tokenizer, _ = shipped()
    text = "Once upon a time there was a little fox who wanted to see the river."
    assert len(tokenizer.encode(text)) < 2 * len(text.split())


def test_a_conversation_is_framed_by_tokens_that_end_turns() -> None:
    tokenizer, chat = shipped()
    messages = [{"role": "user", "content": "Tell me a story."}, {"role": "assistant", "content": "Once."}]
    text = chat.render([*messages, messages[0]])
    assert text.endswith("assistant\n")
    ids = tokenizer.encode(text, add_special=False)
    assert tokenizer.decode(ids) == text
    assert tokenizer.eot_id is not None
    assert ids.count(tokenizer.eot_id) == 3  # one after each message
    assert tokenizer.eot_id in tokenizer.stop_ids
    assert tokenizer.eos_id in tokenizer.stop_ids
    plain = tokenizer.decode(ids, skip_special=True)
    assert "<|" not in plain
    assert "Tell me a story." in plain


def test_a_closed_model_ends_the_process_that_rendered() -> None:
    with zinc_rt.load(device="cpu", n_ctx=16) as model:
        model.chat_template.render([])
        child = model.chat_template._process._child
        assert child is not None
        assert not child.has_ended()
    assert child.has_ended()
