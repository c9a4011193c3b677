"""Train the story model on a CPU within a time budget.

python train.py --tokenizer T.json --tokens train.bin --out DIR --minutes 54
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import fields
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from data import held_out, windows
from model import Config, StoryModel
from parallel import Batch, Pool
from tokenizers import Tokenizer
from torch import Tensor

EVAL_STORIES = 32


def learning_rate(done: float, peak: float, warmup: float, decay: float) -> float:
    """Warm up, stay, decay to nearly zero: `done` is the fraction of the budget that is used up."""
    if done < warmup:
        return peak * (done / warmup + 0.02)
    if done > 1 - decay:
        left = max(0.0, (1 - done) / decay)
        return peak * (0.02 + 0.98 * 0.5 * (1 - math.cos(math.pi * left)))
    return peak


def optimizer_for(model: StoryModel, peak: float) -> torch.optim.AdamW:
    """Slower steps and more decay for the matrices that write to the residual stream.

    At the full rate they outgrow the embeddings a hundredfold, and then nothing can copy a name any more.
    """
    groups: dict[str, list[torch.nn.Parameter]] = {"embedding": [], "norm": [], "write": [], "read": []}
    for name, p in model.named_parameters():
        kind = "embedding" if "token_embd" in name else "norm" if p.dim() < 2 else "read"
        if "attn_output" in name or "ffn_down" in name:
            kind = "write"
        groups[kind].append(p)
    settings = {"embedding": (1.0, 0.0), "norm": (1.0, 0.0), "write": (0.25, 0.2), "read": (1.0, 0.1)}
    return torch.optim.AdamW(
        [{"params": groups[k], "scale": s, "weight_decay": d} for k, (s, d) in settings.items()],
        lr=peak,
        betas=(0.9, 0.98),
        fused=True,
    )


@torch.no_grad()
def perplexity(model: StoryModel, docs: list[list[int]]) -> float:
    """exp of the mean negative log likelihood per predicted token, each story on its own."""
    loss, count = 0.0, 0
    for ids in docs:
        x = torch.tensor([ids])
        loss += float(F.cross_entropy(model(x[:, :-1])[0], x[0, 1:], reduction="sum"))
        count += len(ids) - 1
    return math.exp(loss / count)


def save(path: Path, model: StoryModel, **info: float) -> None:
    """Write beside and rename, so a kill never leaves half a checkpoint."""
    part = path.with_suffix(".part")
    torch.save({"config": model.cfg.to_dict(), "model": model.state_dict(), "info": info}, part)
    part.replace(path)


def load(path: Path) -> tuple[StoryModel, dict[str, float]]:
    """Load a checkpoint."""
    state = torch.load(path, weights_only=True)
    model = StoryModel(Config(**state["config"]))
    model.load_state_dict(state["model"])
    return model.eval(), state["info"]


class Source:
    """Micro-batches by number, the same in every process; phase 0: short windows, phase 1: full context."""

    def __init__(self, path: str, eot: int, lengths: tuple[int, int], rows: tuple[int, int]) -> None:
        self.path, self.eot, self.lengths, self.rows = path, eot, lengths, rows

    def __call__(self, phase: int) -> Batch:
        ids = np.fromfile(self.path, np.uint16)
        cut = int(ids.size * 0.85)  # the rest is kept for the long windows
        cut += int(np.argmax(ids[cut:] == self.eot)) + 1
        ids = ids[cut:] if phase else ids[:cut]
        length, rows = self.lengths[phase], self.rows[phase]
        at = np.random.default_rng(phase).permutation(windows(ids, length, self.eot))
        if at.size < rows:
            raise SystemExit(f"only {at.size} windows of {length} tokens: generate more tokens")

        def batch(number: int) -> Tensor:
            picked = [at[(number * rows + i) % at.size] for i in range(rows)]
            return torch.from_numpy(np.stack([ids[p : p + length + 1] for p in picked]).astype(np.int64))

        return batch


def train(args: argparse.Namespace) -> None:
    """Run the training loop until the time is over."""
    torch.manual_seed(args.seed)
    tok = Tokenizer.from_file(args.tokenizer)
    args.out.mkdir(parents=True, exist_ok=True)
    shape = {f.name: getattr(args, f.name) for f in fields(Config) if getattr(args, f.name, None) is not None}
    model = load(args.init)[0].train() if args.init else StoryModel(Config(**{**shape, "vocab": tok.get_vocab_size()}))
    docs = held_out(tok, EVAL_STORIES)
    print(json.dumps({"parameters": model.parameter_count(), **model.cfg.to_dict()}), flush=True)

    lengths = (args.length, model.cfg.context)
    source = Source(args.tokens, tok.token_to_id("<|endoftext|>"), lengths, (args.rows, 1))
    pool = Pool(model, args.processes, source)
    optimizer = optimizer_for(model, args.lr)
    counts = (args.batch // (args.rows * lengths[0]), args.batch // lengths[1])
    start = saved = time.monotonic()
    budget = args.minutes * 60
    step, seen, smooth, first, phase = 0, 0, 0.0, 0, 0
    while (used := time.monotonic() - start) < budget:
        done = used / budget
        # The last part runs on long windows, so that positions up to the context length are learned, too.
        if phase == 0 and done > 1 - args.long_share:
            phase, first = 1, 0
        for group in optimizer.param_groups:
            group["lr"] = group["scale"] * learning_rate(done, args.lr, args.warmup, args.decay)
        loss = pool.gradients(phase, first, counts[phase])
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        first += counts[phase]
        seen += args.batch
        step += 1
        smooth = loss if step == 1 else 0.97 * smooth + 0.03 * loss
        if step % 50 == 0:
            rate = seen / (time.monotonic() - start)
            print(
                f"step {step} tokens {seen / 1e6:.2f}M loss {smooth:.4f} "
                f"lr {optimizer.param_groups[0]['lr']:.2e} "
                f"{rate:.0f} tok/s {used / 60:.1f} min",
                flush=True,
            )
        if time.monotonic() - saved > args.save_minutes * 60:
            saved = time.monotonic()
            save(args.out / "checkpoint.pt", model, tokens=seen, minutes=used / 60)
            print(f"saved; held-out perplexity {perplexity(model, docs):.3f}", flush=True)
    pool.close()
    minutes = (time.monotonic() - start) / 60
    save(args.out / "final.pt", model, tokens=seen, minutes=minutes)
    print(
        f"done: {seen / 1e6:.2f} M tokens in {minutes:.1f} min, held-out perplexity {perplexity(model, docs):.3f}",
        flush=True,
    )


def main() -> None:
    """Train with the options of the command line."""
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--tokenizer", required=True)
    ap.add_argument("--tokens", required=True, help="file written by data.py")
    ap.add_argument("--out", type=Path, required=True)
    ap.add_argument("--init", type=Path, help="checkpoint to continue from, with a new schedule")
    ap.add_argument("--minutes", type=float, default=54)
    ap.add_argument("--batch", type=int, default=3072, help="tokens of a step")
    ap.add_argument("--rows", type=int, default=1, help="windows of a micro-batch")
    ap.add_argument("--length", type=int, default=384, help="tokens of a window, until the last phase")
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--warmup", type=float, default=0.02, help="fraction of the budget")
    ap.add_argument("--decay", type=float, default=0.35, help="fraction of the budget")
    ap.add_argument(
        "--long-share", type=float, default=0.08, help="fraction of the budget on windows of the full context"
    )
    ap.add_argument("--save-minutes", type=float, default=4)
    ap.add_argument("--processes", type=int, default=2)
    ap.add_argument("--seed", type=int, default=0)
    for f in fields(Config):
        if isinstance(f.default, int):
            ap.add_argument("--" + f.name.replace("_", "-"), type=int, help=f"default {f.default}")
    train(ap.parse_args())


if __name__ == "__main__":
    main()
