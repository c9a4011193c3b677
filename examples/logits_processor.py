"""A logits processor that ends sentences early: `python examples/logits_processor.py [model.gguf]`."""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt

import zinc_rt

PROMPT = "Once upon a time"
LONGEST = 12  # tokens of a sentence


def main(path: str | None = None) -> None:
    """Print a text as the model writes it, and one of short sentences."""
    with zinc_rt.load(path) as model:
        stop = model.tokenize(".", add_special=False)[0]

        def short(token_ids: list[int], logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
            if stop not in token_ids[-LONGEST:]:
                logits[stop] += 8
            return logits

        print("as it is:", model.generate(PROMPT, seed=7, max_tokens=50))
        print("short:   ", model.generate(PROMPT, seed=7, max_tokens=50, logits_processors=[short]))


if __name__ == "__main__":
    main(*sys.argv[1:2])
