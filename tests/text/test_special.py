"""Special tokens in text, the ends of text, and tokens with a role."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import soon
from tests.text import oracles
from tests.text.vocabularies import KEY, bpe, bpe_metadata, recorded, spm, spm_metadata
from zinc_rt.text import Tokenizer, TokenizerError
from zinc_rt.text.bpe import byte_to_char
from zinc_rt.text.special import SpecialTokens
from zinc_rt.text.special_matcher import SpecialToken, SpecialTokenMatcher

NORMAL, UNKNOWN, CONTROL, USER, UNUSED = 1, 2, 3, 4, 5


def with_tokens(extra: dict[str, int], pre: str = "gpt-2", **changes: Any) -> Tokenizer:
    """A byte vocabulary with further tokens of the given types."""
    tokens = [*byte_to_char(), *extra]
    kinds = [NORMAL] * 256 + list(extra.values())
    values = {
        "tokens": tokens,
        "token_type": np.array(kinds, np.int32),
        "merges": [],
        "bos_token_id": None,
        "eos_token_id": None,
    }
    return Tokenizer.from_metadata(bpe_metadata(pre, **values | changes))


def pieces(tokenizer: Tokenizer, text: str, **options: bool) -> list[str]:
    return [tokenizer.token_text(i) for i in tokenizer.encode(text, **options)]


def test_control_tokens_need_parsing_and_user_defined_ones_do_not() -> None:
    tokenizer = with_tokens({"<c>": CONTROL, "<u>": USER, "<k>": UNKNOWN})
    assert pieces(tokenizer, "<c><u><k>") == ["<c>", "<u>", "<k>"]
    assert pieces(tokenizer, "<c><u><k>", parse_special=False) == ["<", "c", ">", "<u>", "<", "k", ">"]


def test_unused_tokens_are_never_recognised_and_show_nothing() -> None:
    tokenizer = with_tokens({"<pad>": UNUSED})
    assert pieces(tokenizer, "<pad>") == list("<pad>")
    assert tokenizer.token_bytes(256) == b""


def test_the_longest_token_cuts_first_wherever_it_starts() -> None:
    tokenizer = with_tokens({"<a>": CONTROL, "<a><b>": CONTROL, ">xyz<": CONTROL})
    assert pieces(tokenizer, "<a><b>") == ["<a><b>"]
    assert pieces(tokenizer, "<a>xyz<b>") == ["<", "a", ">xyz<", "b", ">"]
    assert pieces(tokenizer, "<a><a><b><a>") == ["<a>", "<a><b>", "<a>"]


def test_white_space_around_special_tokens() -> None:
    left = SpecialToken(0, "<m>", only_if_parsed=False, eats_left=True)
    right = SpecialToken(1, "<r>", only_if_parsed=False, eats_right=True)
    split = SpecialTokens([left, right]).split
    assert split("a \n<m> b", False) == ["a", 0, " b"]
    assert split(" <m>", False) == [0]
    assert split("a <r> \tb<r>  ", False) == ["a ", 1, "b", 1]
    assert split("", False) == []


def test_models_known_to_need_it_eat_white_space() -> None:
    extra = {"<|user|>": CONTROL, "<s>": CONTROL}
    tokenizer = with_tokens(extra)
    assert pieces(tokenizer, "<|user|> a<s> b") == ["<|user|>", "Ġ", "a", "<s>", "Ġ", "b"]
    metadata = {"tokenizer.ggml.tokens": [*byte_to_char(), *extra], "tokenizer.ggml.token_type": [1] * 256 + [3, 3]}
    phi = Tokenizer.from_metadata(
        bpe_metadata(merges=[])
        | metadata
        | {"general.name": "My Phi-3 mini"}
        | {KEY + "bos_token_id": 0, KEY + "eos_token_id": 0}
    )
    assert pieces(phi, "<|user|> a<s> b") == ["<|user|>", "a", "<s>", "Ġ", "b"]
    assert pieces(with_tokens({"<mask>": CONTROL}, "jina-v2-de"), "a <mask>") == ["a", "<mask>"]


@given(text=st.lists(st.sampled_from(["<a>", "<ab>", "<", "a", "b>", " ", "><"])).map("".join))
@settings(max_examples=100, deadline=None)
def test_splitting_keeps_every_character_in_order(text: str) -> None:
    names = ["<a>", "<ab>", "b><a", "><"]
    split = SpecialTokens(SpecialToken(i, name, False) for i, name in enumerate(names)).split(text, True)
    assert "".join(piece if isinstance(piece, str) else names[piece] for piece in split) == text
    for piece in split:
        assert isinstance(piece, int) or (piece and not any(name in piece for name in names))


_NAMES = st.sampled_from(["ab", "ab<", "a \n", "aé水"]).flatmap(
    lambda letters: st.text(letters, min_size=1, max_size=6)
)
_TOKENS = st.lists(
    st.tuples(_NAMES, st.booleans(), st.booleans(), st.booleans()), unique_by=lambda t: t[0], max_size=12
)


@given(tokens=_TOKENS, seed=st.randoms(use_true_random=False), parse=st.booleans())
@settings(max_examples=100, deadline=None)
def test_splitting_is_that_of_one_token_after_the_other(tokens: Any, seed: Any, parse: bool) -> None:
    parts = [*(name for name, *_ in tokens), "a", "b", "é", " ", "x"]
    text = "".join(seed.choice(parts) for _ in range(seed.randrange(30)))
    special = SpecialTokens(
        SpecialToken(i, name, only, left, right) for i, (name, only, left, right) in enumerate(tokens)
    )
    expected = oracles.cut(
        text, [(i, name, left, right) for i, (name, only, left, right) in enumerate(tokens) if parse or not only]
    )
    assert special.split(text, parse) == expected


def test_long_rows_of_tokens_that_end_each_other() -> None:
    names = ["a" * n for n in range(1, 60)] + ["b" + "a" * 30, "a" * 30 + "c"]
    special = SpecialTokens(SpecialToken(i, name, False) for i, name in enumerate(names))
    for text in ("a" * 400, ("b" + "a" * 75) * 5, ("a" * 75 + "c") * 5, "xa" * 50 + "a" * 61 + "ba" * 40):
        assert special.split(text, True) == oracles.cut(text, [(i, name, False, False) for i, name in enumerate(names)])


def test_a_shorter_token_is_found_at_once_among_many_that_end_another() -> None:
    lengths = [1, 2, 5, 6, 7, 20, 21, 40, 64, 65, 66, 67, 100]
    matcher = SpecialTokenMatcher([SpecialToken(n, "a" * n, False) for n in reversed(lengths)])
    for rank, token in enumerate(matcher.tokens):
        for room in range(len(token.text) + 1):
            fits = [n for n in lengths if n <= room]
            found = matcher.fitting(rank, room)
            assert (matcher.tokens[found].id if found >= 0 else None) == (max(fits) if fits else None)


def _lines(work: Callable[[], object]) -> int:
    """Lines of the package's Python that `work` runs: its steps, on every machine the same.

    Lines of other code do not count: the garbage collector may run some at any time.
    """
    n = 0

    def count(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal n
        if "zinc_rt" not in frame.f_code.co_filename:
            return None
        n += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return n


HOSTILE = {
    "one token again and again": (["<|im_end|>", "<|im_start|>"], "<|im_end|>"),
    "almost a token": (["<|im_end|>", "a" * 100 + "b"], "<|im_en" + "a" * 99),
    "tokens that end each other": (["a" * n for n in range(1, 100)], "a" * 10),
    "the long ones are in the way": ([*("a" * n for n in range(1, 100)), "b" + "a" * 100], "b" + "a" * 199),
    "the same from the other side": ([*("a" * n for n in range(1, 100)), "a" * 100 + "b"], "a" * 199 + "b"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_the_steps_grow_with_the_text(name: str) -> None:
    names, part = HOSTILE[name]
    special = SpecialTokens(SpecialToken(i, token, False) for i, token in enumerate(names))
    special.split("", True)
    times = 8000 // len(part)
    small, large = (_lines(lambda n=n: special.split(part * n, True)) for n in (times, 4 * times))
    assert small > 1000
    assert large < 4.4 * small


def test_the_steps_do_not_grow_with_the_number_of_tokens() -> None:
    def steps(n_tokens: int) -> int:
        special = SpecialTokens(SpecialToken(i, f"<|user_{i:05}|>", False) for i in range(n_tokens))
        special.split("", True)
        text = "".join(f"<|user_{i * 7 % 100:05}|> " for i in range(500))
        return _lines(lambda: special.split(text, True))

    assert steps(100) == steps(10_000)


@pytest.mark.parametrize("name", soon(("tokens that end each other", "one token again and again"), HOSTILE))
def test_the_time_grows_with_the_text(name: str) -> None:
    """Steps alone would not tell of copies of the whole text at each token."""
    names, part = HOSTILE[name]
    special = SpecialTokens(SpecialToken(i, token, False) for i, token in enumerate(names))

    def seconds(length: int) -> float:
        text = part * (length // len(part))
        best = float("inf")
        for _ in range(3):
            started = time.process_time()
            special.split(text, True)
            best = min(best, time.process_time() - started)
        return best

    assert seconds(240_000) < 8 * seconds(60_000)  # 16 times as long where it is quadratic


def test_spm_text_gets_its_space_at_the_start_and_after_special_tokens() -> None:
    tokenizer, bare = spm(), spm("no_prefix")
    tokens = recorded()["spm"]["tokens"]
    ids = tokenizer.encode("the<s>the<tool>the")
    assert [tokenizer.token_text(i) for i in ids if i in (1, tokens.index("<tool>"))] == ["<s>", "<s>", "<tool>"]
    assert tokenizer.decode(ids) == "<s> the<s> the<tool> the"
    assert bare.decode(bare.encode("the<s>the")) == "the<s>the</s>"
    assert tokenizer.encode("") == [1]
    assert bare.encode("") == [2]


@pytest.mark.parametrize(
    ("pre", "changes", "bos", "eos"),
    [
        ("gpt-2", {}, False, False),
        ("llama-bpe", {}, True, False),
        ("llama-bpe", {"add_bos_token": False}, False, False),
        ("llama-bpe", {"bos_token_id": None}, False, False),
        ("dbrx", {}, False, False),
        ("qwen2", {"add_bos_token": True, "add_eos_token": True}, True, True),
        ("qwen2", {"add_eos_token": np.bool_(True)}, False, True),
    ],
)
def test_bpe_ends(pre: str, changes: dict[str, Any], bos: bool, eos: bool) -> None:
    tokenizer = Tokenizer.from_metadata(bpe_metadata(pre, **changes))
    assert (tokenizer.add_bos, tokenizer.add_eos) == (bos, eos)
    plain = tokenizer.encode("a", add_special=False)
    assert tokenizer.encode("a") == [tokenizer.bos_id] * bos + plain + [tokenizer.eos_id] * eos


def test_default_ids_by_kind() -> None:
    tokenizer = Tokenizer.from_metadata(spm_metadata())
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id, tokenizer.add_bos) == (1, 2, 0, True)
    assert with_tokens({}).bos_id is None
    assert with_tokens({}).eos_id is None
    two = Tokenizer.from_metadata(spm_metadata(tokens=["a", "b"], token_type=None, scores=[0.0, 0.0]))
    assert (two.bos_id, two.eos_id, two.unk_id) == (1, None, None)


def test_turn_ends_are_found_by_name_and_become_control_tokens() -> None:
    tokenizer = with_tokens({"<|endoftext|>": NORMAL, "<|im_end|>": NORMAL, "<|eom_id|>": USER, "[PAD]": NORMAL})
    assert tokenizer.eot_id == 257
    assert tokenizer.stop_ids == {256, 257, 258, 259}
    assert all(tokenizer.is_special(i) for i in tokenizer.stop_ids)
    named = with_tokens({"<|im_end|>": CONTROL, "<x>": CONTROL, "<y>": CONTROL}, eot_token_id=257, eos_token_id=258)
    assert named.eot_id == 257
    assert named.stop_ids == {256, 257, 258}
    assert with_tokens({}).stop_ids == frozenset()


def test_fill_in_the_middle_tokens() -> None:
    tokenizer = with_tokens({"<|fim_prefix|>": NORMAL, "<|file_sep|>": NORMAL, "<|repo_name|>": NORMAL})
    assert tokenizer.stop_ids == {257, 258}
    assert tokenizer.is_special(256)
    named = with_tokens({"<|fim_prefix|>": NORMAL, "<P>": CONTROL}, fim_pre_token_id=257)
    assert not named.is_special(256)


def test_parts_of_an_answer_do_not_end_it() -> None:
    names = {"<|end|>": CONTROL, "<|return|>": CONTROL, "<|call|>": CONTROL, "<|channel|>": CONTROL}
    tokenizer = with_tokens(names, eos_token_id=257)
    assert tokenizer.stop_ids == {257, 258}
    assert not tokenizer.is_special(256)
    assert not tokenizer.is_special(259)
    assert with_tokens({"<|end|>": CONTROL, "<|call|>": CONTROL}).stop_ids == {256, 257}


def test_the_end_of_crossed_out_html_is_no_end_of_text() -> None:
    """Vocabularies with tokens of HTML have "</s>" among them: Gemma's, Qwen's."""
    gemma = with_tokens({"</s>": NORMAL, "<end_of_turn>": CONTROL, "<eos>": CONTROL})
    assert gemma.stop_ids == {257, 258}
    assert not gemma.is_special(256)
    assert with_tokens({"</s>": CONTROL}).stop_ids == {256}
    assert with_tokens({"</s>": NORMAL}, eos_token_id=256).stop_ids == {256}
    assert with_tokens({"</s>": CONTROL, "<|tool_response>": CONTROL}).stop_ids == {257}


def test_token_lookups() -> None:
    tokenizer = bpe()
    assert tokenizer.n_vocab == len(recorded()["bpe"]["tokens"])
    space = tokenizer.token_id("Ġ")
    assert space is not None
    assert tokenizer.token_text(space) == "Ġ"
    assert tokenizer.token_bytes(space) == b" "
    assert tokenizer.token_id("no such token") is None
    assert spm().token_bytes(spm().encode("é\n", add_special=False)[-1]) == b"\n"


@pytest.mark.parametrize("bad", [-1, 10**6, 2**70, 1.5, "a", None])
def test_ids_outside_the_vocabulary(bad: Any) -> None:
    for use in (bpe().token_bytes, bpe().token_text, bpe().is_special, lambda i: bpe().decode([0, i])):
        with pytest.raises(TokenizerError, match="token id"):
            use(bad)


def test_numpy_ids_are_ids() -> None:
    ids = np.array(bpe().encode("river"), np.uint32)
    assert bpe().decode(ids) == "river"


def test_empty_tokens_are_named_by_their_id() -> None:
    tokens = [*byte_to_char(), "", ""]
    tokenizer = Tokenizer.from_metadata(
        bpe_metadata(tokens=tokens, token_type=None, merges=[], bos_token_id=0, eos_token_id=0)
    )
    assert tokenizer.token_text(257) == "[EMPTY_257]"


def test_text_outside_the_byte_table_stands_for_itself() -> None:
    assert with_tokens({"水→": NORMAL}).token_bytes(256) == "水→".encode()
