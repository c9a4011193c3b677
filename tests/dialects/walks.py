"""Texts that a grammar admits, made by random walks over its masks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from itertools import takewhile

import numpy as np

from zinc_rt.grammar.matcher import compile_grammar
from zinc_rt.grammar.vocabulary import GrammarVocabulary
from zinc_rt.scheduler.messages import Grammar
from zinc_rt.text import Tokenizer

_CLOSERS = tuple('"}]\n<,0')


def allowed(mask: np.ndarray[tuple[int], np.dtype[np.uint32]], n_vocab: int) -> list[int]:
    """The tokens of a mask."""
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[:n_vocab]
    return np.flatnonzero(bits).tolist()


@cache
def _kinds(vocabulary: GrammarVocabulary, tokenizer: Tokenizer) -> tuple[frozenset[int], frozenset[int]]:
    """The tokens that begin like the end of something, and the marks."""
    tokens = range(tokenizer.n_vocab)
    closers = frozenset(t for t in tokens if tokenizer.token_bytes(t)[:1].decode("latin-1") in _CLOSERS)
    return closers, frozenset(t for t in tokens if vocabulary.is_mark(t))


def walk(
    grammar: Grammar,
    vocabulary: GrammarVocabulary,
    tokenizer: Tokenizer,
    seed: int,
    phrases: Sequence[str] = (),
    most: int = 600,
) -> list[int]:
    """The token ids of a text that the grammar admits, without the stop token; of `most` tokens at the most.

    phrases: texts that the walk tries to write now and then, letter by letter, as far as they are admitted.
    """
    rng = random.Random(seed)
    matcher = compile_grammar(grammar, vocabulary)
    tokens: list[int] = list(grammar.after[:1])
    for token in tokens:
        assert matcher.consume(token)
    stops = set(vocabulary.stop_ids)
    closers, all_marks = _kinds(vocabulary, tokenizer)
    mask = np.zeros(vocabulary.words, np.uint32)
    free = rng.randrange(12)  # letters of each text before the walk looks for its end
    while len(tokens) < most:
        matcher.fill_mask(mask)
        options = allowed(mask, tokenizer.n_vocab)
        assert options, tokenizer.decode(tokens)
        ends = [token for token in options if token in stops]
        if ends and (len(ends) == len(options) or rng.random() < 0.2):
            return tokens
        options = [token for token in options if token not in stops]
        closing = [token for token in options if token in closers]
        marks = [token for token in options if token in all_marks]
        if marks and rng.random() < 0.3:
            options = marks
        elif closing and len(tokens) > free and rng.random() < 0.6:
            options = closing
        if phrases and not marks and len(options) > 20 and rng.random() < 0.3:
            phrase = tokenizer.encode(rng.choice(phrases), add_special=False, parse_special=False)
            tokens += takewhile(matcher.consume, phrase)
            continue
        token = rng.choice(options)
        assert matcher.consume(token)
        tokens.append(token)
    raise TooLong


class TooLong(Exception):
    """The walk did not come to an end."""
