"""Models of true shapes, as the writer of random weights needs them: keys, tensors, and what a mix does with each.

Figures of a model are from its configuration file or its model card. Speed depends on shapes and block formats alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from zinc_rt.gguf import GGMLType

T = GGMLType
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Heads:
    """Attention of a layer: query heads, key-value heads, elements of each."""

    n_heads: int
    n_kv_heads: int
    head_dim: int

    @property
    def q(self) -> int:
        """Elements of all query heads."""
        return self.n_heads * self.head_dim

    @property
    def kv(self) -> int:
        """Elements of all key heads."""
        return self.n_kv_heads * self.head_dim


@dataclass(frozen=True)
class Sizes:
    """A dense qwen3 model. The defaults are Qwen3-0.6B's. Other families extend this record."""

    n_embd: int = 1024
    n_layers: int = 28
    heads: Heads = Heads(16, 8, 128)
    n_ff: int = 3072
    n_vocab: int = 151_936
    tied: bool = True
    architecture: str = "qwen3"
    extra: Mapping[str, Any] = field(default_factory=dict)

    def keys(self) -> dict[str, Any]:
        """The keys under the architecture's name."""
        return {
            "context_length": 40_960,
            "embedding_length": self.n_embd,
            "block_count": self.n_layers,
            "feed_forward_length": self.n_ff,
            "attention.head_count": self.heads.n_heads,
            "attention.head_count_kv": self.heads.n_kv_heads,
            "attention.key_length": self.heads.head_dim,
            "attention.value_length": self.heads.head_dim,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.freq_base": 1e6,
            **self.extra,
        }

    def model_tensors(self) -> dict[str, Shape]:
        """Tensors outside the layers, without `.weight`."""
        ends = {"token_embd": (self.n_vocab, self.n_embd), "output_norm": (self.n_embd,)}
        return ends if self.tied else {**ends, "output": (self.n_vocab, self.n_embd)}

    def layer(self, i: int) -> dict[str, Shape]:
        """The tensors of layer i by role. A role without a dot gets `.weight`."""
        return {**self.attention(self.heads), **self.feed_forward(i)}

    def attention(self, heads: Heads) -> dict[str, Shape]:
        """Queries, keys, values with head norms, and the output."""
        n = self.n_embd
        return {
            "attn_norm": (n,),
            "attn_q": (heads.q, n),
            "attn_k": (heads.kv, n),
            "attn_v": (heads.kv, n),
            "attn_q_norm": (heads.head_dim,),
            "attn_k_norm": (heads.head_dim,),
            "attn_output": (n, heads.q),
        }

    def feed_forward(self, i: int) -> dict[str, Shape]:
        """The dense part with its norm."""
        n = self.n_embd
        return {
            "ffn_norm": (n,),
            "ffn_gate": (self.n_ff, n),
            "ffn_up": (self.n_ff, n),
            "ffn_down": (n, self.n_ff),
        }

    def format_of(self, role: str, layer: int, quant: str) -> GGMLType:
        """The block format of a matrix in a mix: `MIXES` says which tensors have more bits than the others."""
        head = role == ("token_embd" if self.tied else "output")
        return MIXES[quant].format_of(role, layer, self.n_layers, head)


@dataclass(frozen=True)
class Routed(Sizes):
    """qwen3moe. The defaults are Qwen3-30B-A3B's."""

    n_embd: int = 2048
    n_layers: int = 48
    heads: Heads = Heads(32, 4, 128)
    n_ff: int = 6144
    tied: bool = False
    architecture: str = "qwen3moe"
    n_experts: int = 128
    n_chosen: int = 8
    n_ff_expert: int = 768

    def keys(self) -> dict[str, Any]:
        """See `Sizes.keys`."""
        return {
            **super().keys(),
            "expert_count": self.n_experts,
            "expert_used_count": self.n_chosen,
            "expert_feed_forward_length": self.n_ff_expert,
        }

    def feed_forward(self, i: int) -> dict[str, Shape]:
        """The routed part with its norm."""
        return {"ffn_norm": (self.n_embd,), **self.experts()}

    def experts(self) -> dict[str, Shape]:
        """Router and experts."""
        n, e, f = self.n_embd, self.n_experts, self.n_ff_expert
        return {
            "ffn_gate_inp": (e, n),
            "ffn_gate_exps": (e, f, n),
            "ffn_up_exps": (e, f, n),
            "ffn_down_exps": (e, n, f),
        }


@dataclass(frozen=True)
class Hybrid(Routed):
    """qwen35moe: three gated delta nets, then one attention layer. The defaults are Qwen3.6-35B-A3B's."""

    n_layers: int = 40
    heads: Heads = Heads(16, 2, 256)
    n_vocab: int = 248_320
    architecture: str = "qwen35moe"
    n_experts: int = 256
    n_ff_expert: int = 512
    delta: Heads = Heads(32, 16, 128)
    """Value heads, key heads, elements of each."""
    taps: int = 4

    def keys(self) -> dict[str, Any]:
        """See `Sizes.keys`."""
        return {
            **super().keys(),
            "expert_shared_feed_forward_length": self.n_ff_expert,
            "rope.dimension_count": self.heads.head_dim // 4,
            "rope.dimension_sections": [11, 11, 10, 0],
            "ssm.conv_kernel": self.taps,
            "ssm.state_size": self.delta.head_dim,
            "ssm.group_count": self.delta.n_kv_heads,
            "ssm.time_step_rank": self.delta.n_heads,
            "ssm.inner_size": self.delta.q,
            "full_attention_interval": 4,
        }

    def attention(self, heads: Heads) -> dict[str, Shape]:
        """Attention whose queries come with a gate."""
        return {**super().attention(heads), "attn_q": (2 * heads.q, self.n_embd)}

    def layer(self, i: int) -> dict[str, Shape]:
        """See `Sizes.layer`."""
        mixer = self.attention(self.heads) if (i + 1) % 4 == 0 else self._delta_net()
        return {**mixer, **self.feed_forward(i)}

    def _delta_net(self) -> dict[str, Shape]:
        n, d = self.n_embd, self.delta
        channels = 2 * d.kv + d.q
        return {
            "attn_norm": (n,),
            "attn_qkv": (channels, n),
            "attn_gate": (d.q, n),
            "ssm_conv1d": (channels, self.taps),
            "ssm_dt.bias": (d.n_heads,),
            "ssm_a.": (d.n_heads,),
            "ssm_alpha": (d.n_heads, n),
            "ssm_beta": (d.n_heads, n),
            "ssm_norm": (d.head_dim,),
            "ssm_out": (n, d.q),
        }

    def feed_forward(self, i: int) -> dict[str, Shape]:
        """See `Routed.feed_forward`; one more expert is always on."""
        n, f = self.n_embd, self.n_ff_expert
        return {
            "post_attention_norm": (n,),
            **self.experts(),
            "ffn_gate_inp_shexp": (n,),
            "ffn_gate_shexp": (f, n),
            "ffn_up_shexp": (f, n),
            "ffn_down_shexp": (n, f),
        }


@dataclass(frozen=True)
class GptOss(Routed):
    """gpt-oss. The defaults are gpt-oss-20b's."""

    n_embd: int = 2880
    n_layers: int = 24
    heads: Heads = Heads(64, 8, 64)
    n_ff: int = 2880
    n_vocab: int = 201_088
    architecture: str = "gpt-oss"
    n_experts: int = 32
    n_chosen: int = 4
    n_ff_expert: int = 2880

    def keys(self) -> dict[str, Any]:
        """See `Sizes.keys`."""
        return {
            **super().keys(),
            "attention.layer_norm_rms_epsilon": 1e-5,
            "attention.sliding_window": 128,
            "rope.freq_base": 150_000.0,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 32.0,
            "rope.scaling.original_context_length": 4096,
        }

    def attention(self, heads: Heads) -> dict[str, Shape]:
        """Attention with biases and sinks, without head norms."""
        parts = super().attention(heads)
        biases = {f"{role}.bias": parts[role][:1] for role in ("attn_q", "attn_k", "attn_v", "attn_output")}
        plain = {role: shape for role, shape in parts.items() if role not in ("attn_q_norm", "attn_k_norm")}
        return {**plain, **biases, "attn_sinks": (heads.n_heads,)}

    def feed_forward(self, i: int) -> dict[str, Shape]:
        """Experts with biases."""
        parts = self.experts()
        biases = {f"{role}.bias": shape[:-1] for role, shape in parts.items()}
        return {"post_attention_norm": (self.n_embd,), **parts, **biases}


@dataclass(frozen=True)
class Gemma4(Sizes):
    """gemma4 with per-layer embeddings. The defaults are the E4B's."""

    n_embd: int = 2560
    n_layers: int = 42
    heads: Heads = Heads(8, 2, 512)
    local: Heads = Heads(8, 2, 256)
    n_ff: int = 10_240
    n_vocab: int = 262_144
    architecture: str = "gemma4"
    n_per_layer: int = 256
    n_shared: int = 18

    def windowed(self, i: int) -> bool:
        """Whether layer i sees a window: five of six do."""
        return (i + 1) % 6 != 0

    def keys(self) -> dict[str, Any]:
        """See `Sizes.keys`."""
        return {
            **super().keys(),
            "attention.key_length_swa": self.local.head_dim,
            "attention.value_length_swa": self.local.head_dim,
            "attention.sliding_window": 512,
            "attention.sliding_window_pattern": [self.windowed(i) for i in range(self.n_layers)],
            "attention.shared_kv_layers": min(self.n_shared, self.n_layers // 2),
            "embedding_length_per_layer_input": self.n_per_layer,
            "rope.freq_base_swa": 1e4,
            "rope.dimension_count": self.heads.head_dim,
            "rope.dimension_count_swa": self.local.head_dim,
            "final_logit_softcapping": 30.0,
        }

    def model_tensors(self) -> dict[str, Shape]:
        """See `Sizes.model_tensors`; the table of per-layer embeddings is half of such a file."""
        width = self.n_per_layer * self.n_layers
        return {
            **super().model_tensors(),
            "rope_freqs": (self.heads.head_dim // 2,),
            "per_layer_token_embd": (self.n_vocab, width),
            "per_layer_model_proj": (width, self.n_embd),
            "per_layer_proj_norm": (self.n_per_layer,),
        }

    def layer(self, i: int) -> dict[str, Shape]:
        """See `Sizes.layer`."""
        n, p = self.n_embd, self.n_per_layer
        attention = self.attention(self.local if self.windowed(i) else self.heads)
        if i >= self.n_layers - self.keys()["attention.shared_kv_layers"]:
            attention = {role: s for role, s in attention.items() if role not in ("attn_k", "attn_v", "attn_k_norm")}
        return {
            **attention,
            "post_attention_norm": (n,),
            **self.feed_forward(i),
            "post_ffw_norm": (n,),
            "inp_gate": (p, n),
            "proj": (n, p),
            "post_norm": (n,),
            "layer_output_scale": (1,),
        }


@dataclass(frozen=True)
class Lfm2(Sizes):
    """lfm2: two short convolutions, then one attention layer. The defaults are small."""

    n_embd: int = 512
    n_layers: int = 6
    heads: Heads = Heads(8, 2, 64)
    n_ff: int = 1024
    architecture: str = "lfm2"
    taps: int = 3

    def keys(self) -> dict[str, Any]:
        """See `Sizes.keys`."""
        kv_heads = [self.heads.n_kv_heads if i % 3 == 2 else 0 for i in range(self.n_layers)]
        return {**super().keys(), "attention.head_count_kv": kv_heads, "shortconv.l_cache": self.taps}

    def model_tensors(self) -> dict[str, Shape]:
        """See `Sizes.model_tensors`."""
        return {"token_embd": (self.n_vocab, self.n_embd), "token_embd_norm": (self.n_embd,)}

    def layer(self, i: int) -> dict[str, Shape]:
        """See `Sizes.layer`."""
        n = self.n_embd
        conv = {
            "attn_norm": (n,),
            "shortconv.in_proj.weight": (3 * n, n),
            "shortconv.conv.weight": (n, self.taps),
            "shortconv.out_proj.weight": (n, n),
        }
        return {**(self.attention(self.heads) if i % 3 == 2 else conv), **self.feed_forward(i)}


@dataclass(frozen=True)
class Mix:
    """Which format which matrix has.

    most: nearly all. sensitive: value and down matrices of the layers that `use_more_bits` of llama.cpp names; None
    for no such layers. head: the matrix of the logits. dense: what experts do not hold, where it differs.
    """

    most: GGMLType
    sensitive: GGMLType | None = None
    head: GGMLType | None = None
    dense: GGMLType | None = None
    file_type: int = 0

    def format_of(self, role: str, layer: int, n_layers: int, head: bool) -> GGMLType:
        """The format of a matrix."""
        if role in ("ffn_gate_inp", "ssm_conv1d", "shortconv.conv.weight"):
            return T.F32
        if role == "per_layer_model_proj":
            return T.BF16
        if head and self.head is not None:
            return self.head
        if self.dense is not None and not role.endswith("_exps"):
            return self.dense
        eighth = n_layers // 8
        more = layer < eighth or layer >= 7 * n_layers // 8 or (layer - eighth) % 3 == 2
        if self.sensitive is not None and more and role in ("attn_v", "ffn_down", "ffn_down_exps"):
            return self.sensitive
        return self.most


MIXES = {
    "q8_0": Mix(T.Q8_0, file_type=7),
    "q4_0": Mix(T.Q4_0, file_type=2),
    "q4_k_m": Mix(T.Q4_K, T.Q6_K, T.Q6_K, file_type=15),
    "q6_k": Mix(T.Q6_K, file_type=18),
    "q4_1": Mix(T.Q4_1, file_type=3),
    "q5_0": Mix(T.Q5_0, file_type=8),
    "q5_1": Mix(T.Q5_1, file_type=9),
    "f16": Mix(T.F16, file_type=1),
    "f32": Mix(T.F32, file_type=0),
    "bf16": Mix(T.BF16, file_type=32),
    "iq4_xs": Mix(T.IQ4_XS, head=T.Q6_K, file_type=30),
    "iq4_nl": Mix(T.IQ4_NL, head=T.Q6_K, file_type=25),
    "q3_k": Mix(T.Q3_K, head=T.Q6_K, file_type=11),
    "q2_k": Mix(T.Q2_K, head=T.Q6_K, file_type=10),
    "mxfp4": Mix(T.MXFP4, dense=T.Q8_0, file_type=38),
    "mxfp4_all": Mix(T.MXFP4, head=T.Q8_0, file_type=38),
    # The head, too: what is measured is the format, and a head of more bits is a large part of few layers.
    "q2_0": Mix(T.Q2_0, file_type=41),
    "tq2_0": Mix(T.TQ2_0, file_type=37),
    "tq1_0": Mix(T.TQ1_0, file_type=36),
    "q1_0": Mix(T.Q1_0, file_type=40),
    "iq1_m": Mix(T.IQ1_M, file_type=31),
    "iq2_xxs": Mix(T.IQ2_XXS, file_type=19),
    "iq2_xs": Mix(T.IQ2_XS, file_type=20),
    "iq2_s": Mix(T.IQ2_S, file_type=28),
    "iq3_xxs": Mix(T.IQ3_XXS, file_type=23),
    "iq3_s": Mix(T.IQ3_S, file_type=26),
    "iq1_s": Mix(T.IQ1_S, file_type=24),
}
"""file_type: `general.file_type` of llama.h, enum llama_ftype."""

SIZES: dict[str, Sizes] = {
    "qwen3-0.6b": Sizes(),
    "qwen3-8b": Sizes(n_embd=4096, n_layers=36, heads=Heads(32, 8, 128), n_ff=12288, tied=False),
    # All overhead. Heads of 64: llama.cpp's float16 dot product is scalar below that, which is not what is compared.
    "toy": Sizes(n_embd=64, heads=Heads(2, 1, 64), n_ff=128, n_vocab=512),
    "qwen3-30b-a3b": Routed(),
    "qwen3.6-35b-a3b": Hybrid(),
    "gpt-oss-20b": GptOss(),
    "gemma-4-e4b": Gemma4(),
    # Small models of the kinds of layers that agents meet, for long texts.
    "agent-attention": Sizes(n_embd=512, n_layers=2, heads=Heads(4, 2, 128), n_ff=1024, n_vocab=320),
    "agent-delta-net": Hybrid(
        n_embd=256,
        n_layers=4,
        heads=Heads(2, 1, 256),
        n_vocab=320,
        n_experts=8,
        n_chosen=2,
        n_ff_expert=256,
        delta=Heads(4, 2, 128),
    ),
    "agent-short-conv": Lfm2(n_vocab=320),
    "agent-windows": Gemma4(
        n_embd=256,
        n_layers=12,
        heads=Heads(2, 1, 256),
        local=Heads(2, 1, 128),
        n_ff=512,
        n_vocab=320,
        n_per_layer=64,
        n_shared=6,
    ),
}
