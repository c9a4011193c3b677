"""Texts behind several prompts, computed together: `python examples/many_prompts.py [model.gguf]`."""

from __future__ import annotations

import sys

import zinc_rt

PROMPTS = [f"Once upon a time there was a {animal}" for animal in ("fox", "cat", "whale", "donkey")]


def main(path: str | None = None) -> None:
    """Print the first sentence behind each prompt."""
    with zinc_rt.load(path) as model:
        params = zinc_rt.SamplingParams(temperature=0.5, seed=1, max_tokens=40, stop=(".", "\n"))
        for prompt, text in zip(PROMPTS, model.generate(PROMPTS, params)):
            print(f"{prompt}{text}. ({len(text.token_ids)} tokens, {text.finish_reason})")


if __name__ == "__main__":
    main(*sys.argv[1:2])
