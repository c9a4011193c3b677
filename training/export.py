"""Checkpoint to GGUF: matrices as Q8_0, norms as F32, the vocabulary and the chat template inside.

python export.py --tokenizer T.json --checkpoint final.pt -o zinc-story.gguf
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import gguf
import numpy as np
from chat import TEMPLATE
from gguf.constants import GGMLQuantizationType as QT
from model import Config, StoryModel
from tokenizer import SPECIALS
from train import load

NAME = "zinc-story"


def write_metadata(w: gguf.GGUFWriter, cfg: Config, parameters: int) -> None:
    """Write the GGUF metadata of the model."""
    w.add_type("model")
    w.add_name(NAME)
    w.add_finetune("base")  # a text is continued unless a chat is asked for
    w.add_description("A small storyteller, trained from scratch on generated stories. English only.")
    w.add_license("apache-2.0")
    w.add_languages(["en"])
    w.add_size_label(f"{parameters / 1e6:.1f}M")
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    w.add_file_type(int(gguf.LlamaFileType.MOSTLY_Q8_0))
    w.add_context_length(cfg.context)
    w.add_embedding_length(cfg.hidden)
    w.add_block_count(cfg.layers)
    w.add_feed_forward_length(cfg.ffn)
    w.add_head_count(cfg.heads)
    w.add_head_count_kv(cfg.kv_heads)
    w.add_key_length(cfg.head_dim)
    w.add_value_length(cfg.head_dim)
    w.add_rope_dimension_count(cfg.head_dim)
    w.add_rope_freq_base(cfg.rope_base)
    w.add_layer_norm_rms_eps(cfg.eps)
    w.add_vocab_size(cfg.vocab)


def write_tokenizer(w: gguf.GGUFWriter, path: Path) -> None:
    """Tokens in id order in the GPT-2 byte alphabet, merges in rank order."""
    model = json.loads(path.read_text(encoding="utf-8"))["model"]
    vocab: dict[str, int] = model["vocab"]
    tokens = sorted(vocab, key=vocab.__getitem__)
    if [vocab[t] for t in tokens] != list(range(len(tokens))):
        raise SystemExit(f"{path}: the token ids have gaps")
    types = [gguf.TokenType.CONTROL if t in SPECIALS else gguf.TokenType.NORMAL for t in tokens]
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tokens)
    w.add_token_types([int(t) for t in types])
    w.add_token_merges(merges)
    end, _, turn_end = (vocab[s] for s in SPECIALS)
    w.add_bos_token_id(end)
    w.add_eos_token_id(end)
    w.add_eot_token_id(turn_end)
    w.add_pad_token_id(end)
    w.add_add_bos_token(False)
    w.add_chat_template(TEMPLATE)


def export(model: StoryModel, tokenizer: Path, out: Path) -> None:
    """Write a model and its tokenizer as a GGUF file."""
    w = gguf.GGUFWriter(str(out), "qwen3")
    write_metadata(w, model.cfg, model.parameter_count())
    write_tokenizer(w, tokenizer)
    for name, tensor in model.state_dict().items():
        data = np.ascontiguousarray(tensor.numpy(), np.float32)
        if data.ndim == 1:
            w.add_tensor(name, data)
        else:
            w.add_tensor(name, gguf.quants.quantize(data, QT.Q8_0), raw_dtype=QT.Q8_0)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main() -> None:
    """Export the checkpoint of the command line."""
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--tokenizer", type=Path, required=True)
    ap.add_argument("--checkpoint", type=Path, required=True)
    ap.add_argument("-o", "--out", type=Path, required=True)
    args = ap.parse_args()
    model, info = load(args.checkpoint)
    export(model, args.tokenizer, args.out)
    print(
        f"{args.out}: {model.parameter_count() / 1e6:.2f} M parameters, "
        f"{args.out.stat().st_size / 1e6:.2f} MB, "
        f"{info.get('tokens', 0) / 1e6:.2f} M tokens seen"
    )


if __name__ == "__main__":
    main()
