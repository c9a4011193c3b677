"""Byte-level BPE with the qwen2 pre-tokenizer, trained on the corpus.

python tokenizer.py --documents 12000 -o tokenizer.json
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable

from cast import HE_NAMES, ROBOT_NAMES, SHE_NAMES
from corpus import documents
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

# The split that GGUF readers apply for tokenizer.ggml.pre = "qwen2".
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_tokenizer(texts: Iterable[str], vocab: int) -> Tokenizer:
    """Train the byte-level BPE on texts."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=list(SPECIALS),
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tok.train_from_iterator(texts, trainer)
    return tok


def strip_markers(text: str) -> str:
    """Marker text must not shape the merges: the markers are tokens of their own."""
    for mark in SPECIALS:
        text = text.replace(mark, "\n")
    return text


def main() -> None:
    """Train the tokenizer and write it."""
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--documents", type=int, default=8000)
    ap.add_argument("--vocab", type=int, default=2048)
    ap.add_argument("-o", "--out", required=True)
    args = ap.parse_args()
    # At the start of a paragraph a name has no space before it; repeated alone, it gets a token there, too.
    names = ["\n".join((*HE_NAMES, *SHE_NAMES, *ROBOT_NAMES))] * (args.documents // 10)
    texts = (strip_markers(t) for t in documents(args.seed, args.documents))
    tok = train_tokenizer(itertools.chain(texts, names), args.vocab)
    tok.save(args.out)
    sample = [len(tok.encode(t).ids) for t in documents(args.seed, 500)]
    print(
        f"vocabulary {tok.get_vocab_size()}, {sum(sample) / len(sample):.0f} tokens per document"
        f" (longest {max(sample)})"
    )


if __name__ == "__main__":
    main()
