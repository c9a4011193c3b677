"""Documents to token windows. The corpus is generated as far as it is needed, so no document repeats."""

from __future__ import annotations

import argparse
import multiprocessing
from functools import partial
from pathlib import Path

import numpy as np
from corpus import documents, stories
from tokenizers import Tokenizer

CHUNK = 2000  # documents per job
HELD_OUT_SEED = 990_001  # never used for training


def _encode_chunk(start: int, seed: int, tokenizer: str) -> np.ndarray:
    tok = Tokenizer.from_file(tokenizer)
    eot = tok.token_to_id("<|endoftext|>")
    out: list[int] = []
    for doc in tok.encode_batch(list(documents(seed, CHUNK, start))):
        out += doc.ids
        out.append(eot)
    return np.array(out, np.uint16)


def build(tokenizer: str, seed: int, chunks: int, out: Path) -> int:
    """Write `chunks` * CHUNK documents as one u16 file; returns its number of tokens."""
    total = 0
    with multiprocessing.Pool(2) as pool, out.open("wb") as f:
        for ids in pool.imap(
            partial(_encode_chunk, seed=seed, tokenizer=tokenizer), range(0, chunks * CHUNK, CHUNK)
        ):
            ids.tofile(f)
            total += ids.size
    return total


def windows(ids: np.ndarray, length: int, eot: int) -> np.ndarray:
    """Start offsets of training windows: each begins with a document, as every prompt does."""
    ends = np.flatnonzero(ids == eot)
    starts = np.concatenate([[0], ends[:-1] + 1])
    picked = [0]
    for s in starts:
        # The rest of a document that a window cut off is skipped: new documents cost less than repeats.
        if s - picked[-1] >= length - 64:
            picked.append(int(s))
    return np.array([p for p in picked if p + length + 1 <= ids.size])


def held_out(tok: Tokenizer, n: int) -> list[list[int]]:
    """Token ids of `n` plain stories from a seed that training never uses, each with its end token."""
    eot = tok.token_to_id("<|endoftext|>")
    return [[*tok.encode(s.text).ids, eot] for s in stories(HELD_OUT_SEED, n)]


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--tokenizer", required=True)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--chunks", type=int, default=40, help=f"jobs of {CHUNK} documents")
    ap.add_argument("-o", "--out", type=Path, required=True)
    args = ap.parse_args()
    total = build(args.tokenizer, args.seed, args.chunks, args.out)
    print(f"{args.chunks * CHUNK} documents, {total / 1e6:.2f} M tokens")


if __name__ == "__main__":
    main()
