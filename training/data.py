"""Documents to token windows. The corpus is generated as far as it is needed, so no document repeats.

python data.py --tokenizer T.json --documents 40000 -o train.bin
python data.py --tokenizer T.json --documents 4000 --drills 7000 -o mix.bin
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
from functools import partial
from pathlib import Path

import numpy as np
from corpus import documents, stories
from drills import drill
from tokenizers import Tokenizer

CHUNK = 1000  # documents per job
HELD_OUT_SEED = 990_001  # never used for training


def _encode_chunk(part: int, seed: int, start: int, counts: tuple[int, int], parts: int, tokenizer: str) -> np.ndarray:
    """Part number `part` of `parts`: its share of the documents and of the drills, shuffled together."""
    tok = Tokenizer.from_file(tokenizer)
    eot = tok.token_to_id("<|endoftext|>")
    (a, b), (c, d) = ((n * part // parts, n * (part + 1) // parts) for n in counts)
    texts = [*documents(seed, b - a, start + a), *(drill(random.Random(f"drill/{seed}/{i}")) for i in range(c, d))]
    random.Random(part).shuffle(texts)
    out: list[int] = []
    for doc in tok.encode_batch(texts):
        out += doc.ids
        out.append(eot)
    return np.array(out, np.uint16)


def build(tokenizer: str, seed: int, start: int, counts: tuple[int, int], out: Path) -> int:
    """Write documents (from number `start` of the seed's) and drills as one u16 file; returns its tokens."""
    total = 0
    parts = -(-sum(counts) // CHUNK)
    job = partial(_encode_chunk, seed=seed, start=start, counts=counts, parts=parts, tokenizer=tokenizer)
    with multiprocessing.Pool(2) as pool, out.open("wb") as f:
        for ids in pool.imap(job, range(parts)):
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
    """Write the token file of the command line."""
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--tokenizer", required=True)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--start", type=int, default=0, help="number of the first document")
    ap.add_argument("--documents", type=int, default=40_000)
    ap.add_argument("--drills", type=int, default=0, help="drills to mix in")
    ap.add_argument("-o", "--out", type=Path, required=True)
    args = ap.parse_args()
    total = build(args.tokenizer, args.seed, args.start, (args.documents, args.drills), args.out)
    print(f"{args.documents} documents, {args.drills} drills, {total / 1e6:.2f} M tokens")


if __name__ == "__main__":
    main()
