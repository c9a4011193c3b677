"""The training corpus: stories and chats, drawn from the grammar and fixed by a seed.

python corpus.py --seed 1 -n 20            print twenty documents
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator

import plots_heart
import plots_home
import plots_quest
import plots_village
from beats import Story, Wanted
from grammar import Scene
from lexicon import MACROS

PLOTS: dict[str, Callable[[Scene, Wanted], Story]] = {
    "wish": plots_quest.wish,
    "lost": plots_quest.lost,
    "mystery": plots_village.mystery,
    "village": plots_village.village,
    "learn": plots_home.learn,
    "fear": plots_home.fear,
    "quarrel": plots_home.quarrel,
    "gift": plots_heart.gift,
    "mistake": plots_heart.mistake,
    "deed": plots_heart.deed,
    "seed": plots_heart.seed,
}
# The plot with most of the combinations is told most often.
_WEIGHTED = (
    ("wish",) * 4 + ("lost", "learn", "fear", "deed", "village", "quarrel") * 2 + ("mystery", "gift", "mistake", "seed")
)
ANY = Wanted()


def make_story(rng: random.Random, wanted: Wanted = ANY) -> Story:
    """One story; `wanted` can fix the kind of hero, the trait or the plot."""
    scene = Scene(rng, MACROS)
    return PLOTS[wanted.plot or scene.pick(_WEIGHTED)](scene, wanted)


def _rng(seed: int, index: int) -> random.Random:
    """Each document has its own generator, so any slice of the corpus can be made alone."""
    return random.Random(f"{seed}/{index}")


def stories(seed: int, n: int, start: int = 0) -> Iterator[Story]:
    """Stories number `start` to `start + n - 1` of the corpus `seed`."""
    for i in range(start, start + n):
        yield make_story(_rng(seed, i))


def documents(seed: int, n: int, start: int = 0) -> Iterator[str]:
    """Training documents: about 70 % plain stories and 30 % chats, without the final end-of-text token."""
    from chat import make_chat  # chat builds on this module

    for i in range(start, start + n):
        rng = _rng(seed, i)
        yield make_chat(rng) if rng.random() < 0.3 else make_story(rng).text


def main() -> None:
    """Print stories or documents."""
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("-n", type=int, default=20)
    args = ap.parse_args()
    for text in documents(args.seed, args.n):
        print(text, end="\n\n" + "-" * 40 + "\n\n")


if __name__ == "__main__":
    main()
