"""Selective state space models: Mamba 2 (Dao 2024) alone, and between or beside attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.models.families.build import Case, Shapes, base_keys, model_shapes, norm_shapes
from tests.models.families.common import Net, rms, silu, softplus


def conv(net: Net, u: np.ndarray, p: str) -> np.ndarray:
    """A causal convolution of each channel, its bias, silu; the last tap is the present."""
    taps = net[f"{p}ssm_conv1d.weight"]
    width = taps.shape[1]
    padded = np.concatenate([np.zeros((width - 1, u.shape[1])), u])
    if not net.does("taps"):
        taps = taps[:, ::-1]
    y = sum(padded[j : j + len(u)] * taps[:, j] for j in range(width))
    return silu(y + net[f"{p}ssm_conv1d.bias"] if net.does("conv bias") else y)


def mamba2(net: Net, h: np.ndarray, p: str) -> np.ndarray:
    sizes = ("inner_size", "time_step_rank", "group_count", "state_size")
    inner, heads, groups, size = (net.number(f"ssm.{key}") for key in sizes)
    n, dim = len(h), inner // heads
    z, u, dt = np.split(net.product(h, f"{p}ssm_in"), [inner, 2 * inner + 2 * groups * size], axis=1)
    x, b, c = np.split(conv(net, u, p), [inner, inner + groups * size], axis=1)
    x, b, c = x.reshape(n, heads, dim), b.reshape(n, groups, size), c.reshape(n, groups, size)
    pair = np.arange(heads) // (heads // groups) if net.does("groups of heads") else np.arange(heads) % groups
    dt = softplus(dt + (net[f"{p}ssm_dt.bias"] if net.does("dt bias") else 0.0))
    a, d = net[f"{p}ssm_a"][:, 0], net[f"{p}ssm_d"][:, 0]
    state, y = np.zeros((heads, dim, size)), np.empty((n, heads, dim))
    for t in range(n):
        old = state if net.does("present state") else None
        state = np.exp(dt[t] * a)[:, None, None] * state
        state = state + (dt[t][:, None] * x[t])[:, :, None] * b[t, pair][:, None, :]
        y[t] = np.einsum("hpn,hn->hp", state if old is not None else state / 2, c[t, pair])
        if net.does("skip"):
            y[t] += d[:, None] * x[t]
    return net.product(gated(net, y.reshape(n, inner), z, p, groups), f"{p}ssm_out")


def gated(net: Net, y: np.ndarray, z: np.ndarray, p: str, groups: int) -> np.ndarray:
    """The gate, then the norm of groups where there is one."""
    if not net.has(f"{p}ssm_norm.weight"):
        return y * silu(z)
    weight = net[f"{p}ssm_norm.weight"].reshape(groups, -1)

    def norm(v: np.ndarray) -> np.ndarray:
        return rms(v.reshape(len(v), groups, -1), weight, net.eps).reshape(len(v), -1)

    return norm(y * silu(z)) if net.does("gate first") else norm(y) * silu(z)


def mamba2_shapes(n_embd: int, inner: int, heads: int, groups: int, size: int, *, norm: bool = True) -> Shapes:
    channels = inner + 2 * groups * size
    return {
        "ssm_in.weight": (inner + channels + heads, n_embd),
        "ssm_conv1d.weight": (channels, 4),
        "ssm_conv1d.bias": (channels,),
        "ssm_dt.bias": (heads,),
        "ssm_a": (heads, 1),
        "ssm_d": (heads, 1),
        **({"ssm_norm.weight": (groups, inner // groups)} if norm else {}),
        "ssm_out.weight": (n_embd, inner),
    }


def ssm_keys(inner: int, heads: int, groups: int, size: int) -> dict[str, Any]:
    return {
        "ssm__conv_kernel": 4,
        "ssm__inner_size": inner,
        "ssm__state_size": size,
        "ssm__time_step_rank": heads,
        "ssm__group_count": groups,
    }


WRONG = ("taps", "conv bias", "dt bias", "present state", "skip")


def forward(net: Net, tokens: list[int]) -> np.ndarray:
    x = net["token_embd.weight"][tokens]
    for layer in range(net.number("block_count")):
        p = f"blk.{layer}."
        x = x + mamba2(net, net.norm(x, f"{p}attn_norm"), p)
    return net.head(net.norm(x, "output_norm"))


def mamba2_case(*, seed: int = 1) -> Case:
    sizes = (128, 8, 2, 48)
    keys = {
        key: value
        for key, value in base_keys(**ssm_keys(*sizes)).items()
        if not key.startswith(("attention.head", "attention.key", "attention.value", "rope."))
    }
    block = norm_shapes(64, "attn_norm") | mamba2_shapes(64, *sizes)
    wrong = (*WRONG, "groups of heads", "gate first")
    return Case("mamba2", keys | {"feed_forward_length": 0}, model_shapes(64, [block] * 2), forward, wrong, seed=seed)


CASES = {"mamba2": mamba2_case()}
