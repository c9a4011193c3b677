"""The grammar that wrote the training corpus of the shipped model: fixed by its seed, correct, varied."""

from __future__ import annotations

import importlib
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

TRAINING = Path(__file__).resolve().parent.parent / "training"


@pytest.fixture(scope="module")
def corpus() -> Iterator[ModuleType]:
    """The scripts in training/ are no package: they import each other by name, so the path needs them."""
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(TRAINING))
    yield importlib.import_module("corpus")
    patch.undo()


@pytest.fixture(scope="module")
def tales(corpus: ModuleType) -> list:
    return list(corpus.stories(7, 600))


def test_a_seed_fixes_the_stories(corpus: ModuleType, tales: list) -> None:
    assert [s.text for s in corpus.stories(7, 40)] == [s.text for s in tales[:40]]
    assert [s.text for s in corpus.stories(7, 10, start=30)] == [s.text for s in tales[30:40]]
    assert next(corpus.stories(8, 1)).text != tales[0].text
    assert list(corpus.documents(3, 20)) == list(corpus.documents(3, 20))


@pytest.mark.parametrize(
    "wrong",
    [
        r"[{}\[\]|@]",  # a slot, an alternation or an article mark is left
        r"\b[Aa] [aeio]",  # "a old"
        r"\ban [bcdfgjklmnpqrstvwxyz]",  # "an red"
        r"\b(\w+) \1\b",  # "the the"
        r" [,.!?]",
        r"[,.!?]{2}",
        r"  ",  # stray spaces and doubled stops
        r"[.!] [a-z]",  # a sentence without its capital letter
        r"\b(None|nan)\b",
    ],
)
def test_nothing_is_misprinted(tales: list, wrong: str) -> None:
    hits = [m.group() for s in tales for m in re.finditer(wrong, s.text)]
    assert not hits, hits[:5]


def test_articles(corpus: ModuleType) -> None:
    article = sys.modules["grammar"].article
    assert [article(w) for w in ("owl", "fox", "honest", "old", "umbrella", "useful", "hour", "one")] == [
        "an",
        "a",
        "an",
        "an",
        "an",
        "a",
        "an",
        "a",
    ]


def test_quotes_are_closed_within_their_paragraph(tales: list) -> None:
    assert all(p.count('"') % 2 == 0 for s in tales for p in s.paragraphs)


def test_hero_and_helper_stay_the_same(tales: list) -> None:
    for s in tales:
        names = {s.hero.name, s.helper.name}
        assert len(names) == 2
        assert s.hero.kind.word != s.helper.kind.word
        assert s.hero.name in s.paragraphs[0]
        assert any(s.helper.name in p for p in s.paragraphs[1:])
        assert s.hero.name in " ".join(s.paragraphs[-3:])
        # No third name from the lists turns up.
        cast = sys.modules["cast"]
        others = {*cast.HE_NAMES, *cast.SHE_NAMES} - names
        found = {w for w in re.findall(r"\b[A-Z][a-z]+\b", s.text) if w in others}
        assert not found, (found, s.text)


def test_the_wish_is_told_and_fulfilled(corpus: ModuleType) -> None:
    beats = sys.modules["beats"]
    for i in range(80):
        s = corpus.make_story(random.Random(i), beats.Wanted(plot="wish"))
        answers = dict(s.questions)
        wish = answers[f"What did {s.hero.name} want?"].split(" wanted to ")[1].rstrip(".")
        place = answers[f"Where did {s.hero.name} go?"].split(" went to ")[1].rstrip(".")
        assert wish in s.paragraphs[0]
        assert place in s.paragraphs[-2]


def test_requests_name_only_what_the_story_tells(tales: list) -> None:
    for s in tales:
        for topic in s.topics:
            if s.trait in topic.split():
                assert re.search(rf"\b{s.trait}\b", s.paragraphs[0]), (topic, s.paragraphs[0])


def test_sentences_vary(tales: list) -> None:
    sentences = [x for s in tales for x in re.split(r'(?<=[.!?])"?\s+', s.text)]
    assert len(set(sentences)) / len(sentences) > 0.5
    # Without the names, so that the variety is not only that of the name lists.
    bare = [re.sub(r"\b[A-Z][a-z]+\b", "", x) for x in sentences]
    assert len(set(bare)) / len(bare) > 0.2
    assert len({s.text for s in tales}) == len(tales)


def test_length(tales: list) -> None:
    words = sorted(len(s.text.split()) for s in tales)
    assert words[0] > 80
    assert words[-1] < 400


def test_chats_are_well_formed(corpus: ModuleType) -> None:
    docs = list(corpus.documents(5, 600))
    chats = [d for d in docs if d.startswith("<|im_start|>")]
    assert 0.2 < len(chats) / len(docs) < 0.4
    turn = re.compile(r"<\|im_start\|>(system|user|assistant)\n(.+?)<\|im_end\|>\n", re.S)
    for d in chats:
        assert turn.sub("", d) == "", d
        roles = [m.group(1) for m in turn.finditer(d)]
        assert roles[0] in ("system", "user")
        asked = [r for r in roles if r != "system"]
        assert asked == ["user", "assistant"] * (len(asked) // 2)


def test_drills_repeat_their_characters(corpus: ModuleType) -> None:
    drills, cast = importlib.import_module("drills"), importlib.import_module("cast")
    texts = [drills.drill(random.Random(i)) for i in range(200)]
    assert len(set(texts)) == 200
    for text in texts:
        words = re.findall(r"\w+", text)
        assert "{" not in text
        assert len({w for w in words if w in (*cast.HE_NAMES, *cast.SHE_NAMES, *cast.ROBOT_NAMES)}) == 2
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", text)
