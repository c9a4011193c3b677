"""Sample from a checkpoint or from the exported file, and measure held-out perplexity.

python sample.py --tokenizer T.json --model zinc-story.gguf --prompt "Once upon a time"
python sample.py --tokenizer T.json --model zinc-story.gguf --chat "Tell me a story about a fox."
python sample.py --tokenizer T.json --model final.pt --perplexity 400
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gguf
import torch
from chat import render
from data import held_out
from model import Config, StoryModel
from tokenizers import Tokenizer
from train import load, perplexity


def load_gguf(path: Path) -> StoryModel:
    """The exported file, dequantised: what a runtime that reads the file computes with."""
    reader = gguf.GGUFReader(path)

    def number(key: str) -> float:
        return reader.fields["qwen3." + key].contents()

    tensors = {t.name: torch.from_numpy(gguf.quants.dequantize(t.data, t.tensor_type).copy()) for t in reader.tensors}
    cfg = Config(
        vocab=tensors["token_embd.weight"].shape[0],
        hidden=number("embedding_length"),
        layers=number("block_count"),
        heads=number("attention.head_count"),
        kv_heads=number("attention.head_count_kv"),
        head_dim=number("attention.key_length"),
        ffn=number("feed_forward_length"),
        context=number("context_length"),
        rope_base=number("rope.freq_base"),
        eps=number("attention.layer_norm_rms_epsilon"),
    )
    model = StoryModel(cfg)
    model.load_state_dict(tensors)
    return model.eval()


@torch.no_grad()
def sample(
    model: StoryModel, tok: Tokenizer, prompt: str, temperature: float, top_p: float, seed: int, limit: int
) -> str:
    """The continuation of `prompt`, up to a stop token; no cache, as this is for looking only."""
    gen = torch.Generator().manual_seed(seed)
    ids = tok.encode(prompt).ids
    first = len(ids)
    stops = {tok.token_to_id("<|endoftext|>"), tok.token_to_id("<|im_end|>")}
    while len(ids) - first < limit and len(ids) < model.cfg.context:
        logits = model(torch.tensor([ids]))[0, -1]
        if temperature == 0:
            token = int(logits.argmax())
        else:
            p, order = torch.softmax(logits / temperature, -1).sort(descending=True)
            p[p.cumsum(0) - p > top_p] = 0
            token = int(order[torch.multinomial(p, 1, generator=gen)])
        if token in stops:
            break
        ids.append(token)
    return tok.decode(ids[first:])


def main() -> None:
    """Print samples or the held-out perplexity."""
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--tokenizer", required=True)
    ap.add_argument("--model", type=Path, required=True, help=".pt or .gguf")
    ap.add_argument("--prompt", action="append", default=[])
    ap.add_argument("--chat", action="append", default=[], help="a user message")
    ap.add_argument("--temperature", type=float, default=0.8)
    ap.add_argument("--top-p", type=float, default=1.0)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--limit", type=int, default=500)
    ap.add_argument("--perplexity", type=int, default=0, help="number of held-out stories")
    args = ap.parse_args()
    torch.set_num_threads(2)
    tok = Tokenizer.from_file(args.tokenizer)
    model = load_gguf(args.model) if args.model.suffix == ".gguf" else load(args.model)[0]
    prompts = [(p, p) for p in args.prompt]
    prompts += [(f"[{c}] ", render([("user", c)]) + "<|im_start|>assistant\n") for c in args.chat]
    for shown, prompt in prompts:
        text = sample(model, tok, prompt, args.temperature, args.top_p, args.seed, args.limit)
        print(shown + text, end="\n" + "-" * 40 + "\n", flush=True)
    if args.perplexity:
        docs = held_out(tok, args.perplexity)
        print(f"held-out perplexity per token, {len(docs)} stories: {perplexity(model, docs):.4f}")


if __name__ == "__main__":
    main()
