"""What guesses gain and cost: tokens per second of texts that are given, so that any model may be measured.

    python benchmarks/speculation.py MODEL [--spec ngram] [--text rewrite|trap|new] [-n 256] [-md DRAFT --right 0.8]

Each step computes what it would; only the token that is taken from its logits is the given text's. `rewrite` writes a
Python file of this package again with names changed; `trap` draws from four tokens, so that the last ones occurred
before and something else follows; `new` has nothing twice. With a draft model, so many of its guesses are made right.
The last number of a line is tokens per second; before it, guesses and those that were right.
"""

from __future__ import annotations

import argparse
import random
import re
import zlib
from pathlib import Path

import numpy as np

import zinc_rt
from zinc_rt.sampling.request import HostSampled
from zinc_rt.sampling.sampler import Sampled
from zinc_rt.speculation import pace


def source_tokens(n_vocab: int, renamed: bool) -> list[int]:
    """A source file in words, each a token id by its hash."""
    text = Path(pace.__file__).read_text(encoding="utf-8")
    if renamed:
        text = text.replace("record", "entry").replace("n_rows", "rows")
    return [zlib.crc32(word.encode()) % n_vocab for word in re.findall(r"\w+|\s+|[^\w\s]+", text)]


def case(name: str, n_vocab: int) -> tuple[list[int], list[int]]:
    """A prompt, and the text behind it."""
    draw = random.Random(1)
    if name == "rewrite":
        return source_tokens(n_vocab, renamed=False), source_tokens(n_vocab, renamed=True)
    if name == "trap":
        return [draw.randrange(4) for _ in range(256)], [draw.randrange(4) for _ in range(4096)]
    order = draw.sample(range(n_vocab), min(n_vocab, 4352))
    return order[:256], order[256:]


def main() -> None:
    """Print a line for each round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--spec", default="off")
    parser.add_argument("-md", type=Path)
    parser.add_argument("--right", type=float, default=0.8)
    parser.add_argument("--text", default="rewrite", choices=["rewrite", "trap", "new"])
    parser.add_argument("-n", type=int, default=256)
    parser.add_argument("-r", type=int, default=2)
    parser.add_argument("-np", type=int, default=1, help="texts at once, all the same")
    given = parser.parse_args()
    spec = {"draft_model": given.md} if given.md else {"spec": given.spec}
    with zinc_rt.load(given.model, device="cpu", n_ctx=8192, n_slots=given.np, **spec) as model:
        prompt, text = case(given.text, model.tokenizer.n_vocab)

        draw = random.Random(2)

        def choose(sampled: HostSampled, row: int) -> Sampled:
            sampler = sampled._requests[row].sampler
            sampler.step += 1
            token = text[sampler.step - 1]
            wrong = not np.may_share_memory(sampled.logits, model.engine._logits) and draw.random() >= given.right
            return Sampled((token + 1) % model.tokenizer.n_vocab if wrong else token)

        HostSampled._choose = choose  # type: ignore[method-assign]
        for _ in range(given.r):
            before = model.client.core.status
            done = model.generate([prompt] * given.np, temperature=0.0, max_tokens=given.n, ignore_eos=True)
            rate = given.np * (given.n - 1) / max(one.stats.decode_seconds for one in done)
            now = model.client.core.status
            drafted = now.drafted_tokens - before.drafted_tokens
            right = now.accepted_tokens - before.accepted_tokens
            print(given.text, given.md or given.spec, drafted, right, f"{rate:.1f}", flush=True)


if __name__ == "__main__":
    main()
