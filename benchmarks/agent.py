"""Two agents in turns on small models of hybrid shapes: what a server reads again, and the time to the first token.

    python benchmarks/agent.py [--models FOLDER] [--peer-bin FOLDER] [--kinds delta-net,windows] [--turns 30]

Both agents begin with a long prompt of their own (system prompt and tools). Each of their turns appends the answer and
a tool's result to the text, until it has `--tokens` tokens. In turn `--edit-turn` the first agent changes one token in
the middle of its text, as a client that shortens an old result does, and goes on from there. Prompts are token ids.

**Tokens read again** in a turn: tokens that the prompt has in common with what the agent's turn before computed, less
the tokens that the server took from its cache. What a turn computes is its prompt and its answer but for the last
token. So an appended turn that goes on where the last one ended has 0; behind an edit they are the tokens between the
place where the server went on and the edit. **Time to the first token** begins with the request. **Same as cold**:
the answers of some turns, the edited one among them, are compared with those of a request that finds nothing cached:
of another tenant in `zinc serve`, with `cache_prompt: false` in llama-server.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import random_model
import serving_servers as servers
from serving_client import Answer, Connection
from serving_servers import Server, Sizes

KINDS = ("attention", "delta-net", "short-conv", "windows")
"""Kinds of layers, and the ends of the models' names."""
AGENTS = 2
PEER_FLAGS = "--cache-ram 8192 --ctx-checkpoints 128 --checkpoint-min-step 256 --swa-full"
"""What makes llama-server keep most: states, and all keys of windows."""
FIRST_LETTER, LAST_LETTER = 97, 122
"""The tokens of texts: `a` to `z`, whose ids are their bytes."""
_START_SHARE = 0.2
_CONTEXT_SPARE = 2048


@dataclass(frozen=True)
class Turn:
    """What a turn gave. common: tokens that the turn before had computed; seconds: to the first token."""

    agent: int
    number: int
    edited: bool
    common: int
    cached: int
    seconds: float
    same: bool | None = None

    @property
    def again(self) -> int:
        """Tokens read again."""
        return max(0, self.common - self.cached)


@dataclass
class Agent:
    """One agent's text. computed: the tokens that its last turn has computed."""

    number: int
    rng: np.random.Generator
    text: list[int]
    computed: list[int] = field(default_factory=list)

    def append(self, n: int) -> None:
        """A tool's result of n tokens."""
        self.text += self.rng.integers(FIRST_LETTER, LAST_LETTER + 1, n).tolist()

    def edit(self) -> None:
        """Change the token in the middle."""
        at = len(self.text) // 2
        self.text[at] = FIRST_LETTER + (self.text[at] + 1 - FIRST_LETTER) % (LAST_LETTER + 1 - FIRST_LETTER)


def request(text: list[int], n_answer: int, n_vocab: int, seed: int) -> dict[str, Any]:
    """The body of a request; the answer has letters alone, so its ids follow from its text."""
    others = [i for i in range(n_vocab) if not FIRST_LETTER <= i <= LAST_LETTER]
    return {
        "prompt": text,
        "max_tokens": n_answer,
        "temperature": 0.8,
        "seed": seed,
        "logit_bias": {str(i): -100 for i in others},
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def cached(answer: Answer) -> int:
    """Prompt tokens from the cache, as the server counts them. Raises ValueError for an answer without."""
    for _, event in reversed(answer.events):
        details = (event.get("usage") or {}).get("prompt_tokens_details")
        if details:
            return int(details["cached_tokens"])
    raise ValueError(f"no usage in {answer.raw[-400:]!r}")


async def converse(server: Server, args: argparse.Namespace, n_vocab: int) -> list[Turn]:
    """The turns of all agents, one after the other."""
    first = int(args.tokens * _START_SHARE)
    step = (args.tokens - first) // args.turns
    agents = [Agent(i, np.random.default_rng(i), []) for i in range(AGENTS)]
    for agent in agents:
        agent.append(first - step)
    warm = Connection(server.port, server.key())
    others = zip((1, args.edit_turn), servers.TENANTS[1:], strict=True)
    fresh = {number: Connection(server.port, server.key(tenant)) for number, tenant in others}
    turns = []
    for number in range(args.turns):
        for agent in agents:
            edited = number == args.edit_turn and agent.number == 0
            if edited:
                agent.edit()
            agent.append(step - args.answer)
            body = request(agent.text, args.answer, n_vocab, number)
            answer = await warm.post("/v1/completions", body)
            said = list(answer.text.encode())
            same = None
            if agent.number == 0 and number in fresh:
                cold = await fresh[number].post("/v1/completions", {**body, "cache_prompt": False})
                if server.name == "ours" and cached(cold):
                    raise ValueError("the cold request found something cached")
                same = cold.text == answer.text
            common = common_tokens(agent.computed, agent.text)
            turns.append(Turn(agent.number, number, edited, common, cached(answer), answer.first, same))
            agent.text += said
            agent.computed = agent.text[:-1]
    for connection in (warm, *fresh.values()):
        connection.close()
    return turns


def common_tokens(old: list[int], new: list[int]) -> int:
    """How many tokens both begin with."""
    most = min(len(old), len(new))
    return next((i for i in range(most) if old[i] != new[i]), most)


def row(kind: str, name: str, turns: list[Turn]) -> str:
    """A line of the table: the worst appended turn, the edited one, the median seconds, whether cold ones are equal."""
    appended = [turn for turn in turns if turn.number and not turn.edited]
    edits = [turn for turn in turns if turn.edited]
    again = max(turn.again for turn in appended)
    total = sum(turn.again for turn in appended)
    behind = max((turn.again for turn in edits), default=0)
    seconds = statistics.median(turn.seconds for turn in appended)
    last = statistics.mean(turn.seconds for turn in appended[-AGENTS:])
    longest = max((turn.seconds for turn in edits), default=0.0)
    same = all(turn.same for turn in turns if turn.same is not None)
    figures = f"{again} | {total} | {behind} | {seconds:.2f} | {last:.2f} | {longest:.2f}"
    return f"| {kind} | {name} | {figures} | {'yes' if same else 'no'} |"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, metavar="FOLDER", help="where the models are written and kept")
    parser.add_argument("--peer-bin", type=Path, metavar="FOLDER", help="llama-server")
    parser.add_argument("--kinds", default=",".join(KINDS), metavar="NAME,...", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--only", choices=("ours", "peer"), help="one server alone")
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--tokens", type=int, default=30_000, help="of a text at its end")
    parser.add_argument("--answer", type=int, default=24, help="tokens of an answer")
    parser.add_argument("--edit-turn", type=int, default=20, help="the turn of the edit, from 0")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--flags", default="", help="more options of zinc serve")
    parser.add_argument("--peer-flags", default=PEER_FLAGS, help="options of llama-server")
    args = parser.parse_args()
    if unknown := set(args.kinds.split(",")) - set(KINDS):
        parser.error(f"there is no kind {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    return args


def measure(kind: str, folder: Path, args: argparse.Namespace) -> None:
    """Print the rows of a kind."""
    name = f"agent-{kind}-q8_0"
    model = folder / f"{name}.gguf"
    if not model.exists():
        random_model.write(model, name)
    n_vocab = random_model.parse(name)[0].n_vocab
    sizes = Sizes(AGENTS, args.tokens + _CONTEXT_SPARE)
    made = []
    if args.only != "peer":
        flags = [*args.flags.split(), "-np", str(2 * AGENTS)]  # the cold requests take places of their own
        made.append(servers.ours(model, sizes, args.threads, folder, flags))
    if args.peer_bin is not None and args.only != "ours":
        flags = [*args.peer_flags.split(), "-np", str(2 * AGENTS), "-c", str(2 * AGENTS * sizes.context)]
        made.append(servers.peer(args.peer_bin, model, sizes, args.threads, folder, flags))
    for server in made:
        with server:
            turns = asyncio.run(converse(server, args, n_vocab))
        for turn in turns:
            print(server.name, turn, turn.again, file=sys.stderr)
        print(row(kind, server.name, turns), flush=True)


def main() -> None:
    """Print the table."""
    args = arguments()
    print("| layers | server | read again, worst | all | behind the edit | first token, s | last turns | edit | cold |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.models or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for kind in args.kinds.split(","):
            measure(kind, folder, args)


if __name__ == "__main__":
    main()
