"""Texts that are hard to cut into words, the same ones for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.text.oracles import stable_characters

_SNIPPETS = (
    " ", " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n", "\u3000", "\xa0", "\x85", "\x1c",
    "'s", "'LL", "'Re", "'d", "'", "''", "-", "--", ".", "...", "!\n", "://", "/", "//\n", "$", "`", "(", ")", "_",
    "=>", "0", "7", "12", "345", "1234567", "٣", "½", "Ⅷ", "²",
    "a", "b", "river", "River", "RIVER", "riverStones", "HTTPServer", "can't", "DON'T", "iPhone",
    "é", "É", "e\u0301", "E\u0301", "\u0301", "ж", "Ж", "жЖ", "ß", "ǅ", "ª", "ʰ",
    "水", "水源", "ひ", "カ", "ー", "한국", "ㄅ", "ㄱ", "ไทย", "न\u094d", "म", "\u0627", "ש",
    "。", "\uff0c", "\uff01", "…", "“", "”", "—", "、", "।", "😀", "\u200d", "\u200b", "▁", "\ufffd",
)  # fmt: skip


def random_texts(seed: int, count: int, *, any_character: bool = True) -> Iterator[str]:
    """`count` texts of up to 24 pieces: snippets, and with `any_character` any characters that all tables agree on."""
    draw = random.Random(seed)
    characters = stable_characters()
    for _ in range(count):
        pieces = []
        for _ in range(draw.randint(1, 24)):
            piece = draw.choice(characters if any_character and draw.random() < 0.15 else _SNIPPETS)
            pieces.append(piece * (draw.randint(2, 9) if draw.random() < 0.05 else 1))
        yield "".join(pieces)
