"""A random model of a few kilobytes, so that commands run for real: one layer, a byte vocabulary, ChatML."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.helpers import packed
from zinc_rt.gguf import GGMLType, GGUFWriter, ValueType

N_EMBD, N_HEADS, N_FF, N_CTX = 32, 2, 64, 256
SPECIALS = ["<|end|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NORMAL, CONTROL = 1, 3  # token types of the format


def byte_characters() -> list[str]:
    """The GPT-2 alphabet: a printable character for every byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    return [chr(b if b in shown else next(rest)) for b in range(256)]


def write_tiny_model(
    path: Path,
    *,
    template: str = TEMPLATE,
    architecture: str = "llama",
    pooling: int | None = None,
    marks: Sequence[str] = (),
    finetune: str = "",
    weights: GGMLType = GGMLType.F32,
) -> Path:
    """Write the model. Its own text is noise in lower-case letters and spaces, which never ends by itself.

    pooling: the number that makes it an embedding model. marks: further special tokens. finetune: what it
    was tuned for. weights: the format of matrices.
    """
    rng = np.random.default_rng(3)
    vocabulary = [*byte_characters(), *SPECIALS, "he", "the", *marks]
    types = [NORMAL] * 256 + [CONTROL] * 3 + [NORMAL] * 2 + [CONTROL] * len(marks)
    w = GGUFWriter(path)
    w.add("general.architecture", architecture)
    w.add("general.name", "tiny")
    if finetune:
        w.add("general.finetune", finetune)
    for key, value in {
        "context_length": N_CTX,
        "embedding_length": N_EMBD,
        "block_count": 1,
        "feed_forward_length": N_FF,
        "attention.head_count": N_HEADS,
        "attention.head_count_kv": 1,
        "rope.dimension_count": N_EMBD // N_HEADS,
    }.items():
        w.add(f"{architecture}.{key}", value, ValueType.UINT32)
    w.add(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-5, ValueType.FLOAT32)
    w.add(f"{architecture}.rope.freq_base", 10000.0, ValueType.FLOAT32)
    if pooling is not None:
        w.add(f"{architecture}.pooling_type", pooling, ValueType.UINT32)
    w.add("tokenizer.ggml.model", "gpt2")
    w.add("tokenizer.ggml.pre", "gpt-2")
    w.add("tokenizer.ggml.tokens", vocabulary)
    w.add("tokenizer.ggml.token_type", np.array(types, np.int32))
    w.add("tokenizer.ggml.merges", ["h e", "t he"])
    w.add("tokenizer.ggml.bos_token_id", 256, ValueType.UINT32)
    w.add("tokenizer.ggml.eos_token_id", 256, ValueType.UINT32)
    w.add("tokenizer.ggml.eot_token_id", 258, ValueType.UINT32)
    w.add("tokenizer.ggml.add_bos_token", False)
    if template:
        w.add("tokenizer.chat_template", template)

    def tensor(name: str, *shape: int, data: np.ndarray | None = None) -> None:
        values = rng.standard_normal(shape) * 0.2 if data is None else data
        kind = weights if len(shape) == 2 else GGMLType.F32
        w.add_tensor(name, packed(kind, values.astype(np.float32).reshape(-1, shape[-1]), rng), kind, shape)

    def quiet(n_in: int) -> np.ndarray:
        """A projection that leaves component 0 alone."""
        values = rng.standard_normal((N_EMBD, n_in)) * 0.2
        values[0] = 0
        return values

    def ones(name: str) -> None:
        tensor(name, N_EMBD, data=np.ones(N_EMBD))

    kv = N_EMBD // N_HEADS
    # The first component is the same for every token and stays largest: it tells letters from the rest.
    embedding = rng.standard_normal((len(vocabulary), N_EMBD)) * 0.3
    embedding[:, 0] = 3.0
    tensor("token_embd.weight", len(vocabulary), N_EMBD, data=embedding)
    ones("blk.0.attn_norm.weight")
    tensor("blk.0.attn_q.weight", N_EMBD, N_EMBD)
    tensor("blk.0.attn_k.weight", kv, N_EMBD)
    tensor("blk.0.attn_v.weight", kv, N_EMBD)
    tensor("blk.0.attn_output.weight", N_EMBD, N_EMBD, data=quiet(N_EMBD))
    ones("blk.0.ffn_norm.weight")
    tensor("blk.0.ffn_gate.weight", N_FF, N_EMBD)
    tensor("blk.0.ffn_up.weight", N_FF, N_EMBD)
    tensor("blk.0.ffn_down.weight", N_EMBD, N_FF, data=quiet(N_FF))
    ones("output_norm.weight")
    output = rng.standard_normal((len(vocabulary), N_EMBD)) * 0.2
    letters = [*range(ord("a"), ord("z") + 1), ord(" ")]
    output[:, 0] = -4.0
    output[letters, 0] = 4.0
    tensor("output.weight", len(vocabulary), N_EMBD, data=output)
    w.write()
    return path
