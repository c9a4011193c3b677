"""Every family in the tests' own words: a model to make up and its float64 formulas.

`CASES` names them all. The formulas were compared with llama.cpp (`test_llamacpp.py`), not with the code under test.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from tests import helpers
from tests.models.families import (
    deepseek2,
    deepseek4,
    dense,
    gemma2,
    gemma3,
    gemma4,
    glm,
    gpt_oss,
    kimi_linear,
    layer_normed,
    lfm2,
    llama4,
    mamba,
    mixtures,
    olmo2,
    phimoe,
    plain,
    qwen4exp,
    qwen35,
    qwen_moe,
)
from tests.models.families.build import Case

CASES: dict[str, Case] = {
    **qwen_moe.CASES,
    **qwen35.CASES,
    **dense.CASES,
    **olmo2.CASES,
    **glm.CASES,
    **gemma2.CASES,
    **gemma3.CASES,
    **gemma4.CASES,
    **gpt_oss.CASES,
    **lfm2.CASES,
    **deepseek2.CASES,
    **deepseek4.CASES,
    **mamba.CASES,
    **mixtures.CASES,
    **plain.CASES,
    **layer_normed.CASES,
    **kimi_linear.CASES,
    **llama4.CASES,
    **qwen4exp.CASES,
    **phimoe.CASES,
}
ARCHITECTURES = tuple({case.architecture: name for name, case in reversed(CASES.items())}.values())[::-1]
"""The first case of each architecture; the others differ from it by a key or by how a file holds its matrices."""
_MODULES = (qwen_moe, qwen35, dense, gemma2, gemma4, gpt_oss, lfm2, deepseek2, mamba, kimi_linear, qwen4exp, deepseek4)
FAMILIES = tuple(next(iter(module.CASES)) for module in _MODULES)
"""One case of each kind of layers: experts, recurrent, dense, windows, shared caches, sinks, latent attention, state
spaces, decays of channels, streams.
"""
KINDS = (
    *FAMILIES,
    *("qwen2moe", "qwen3next", "gemma4-experts", "nemotron_h_moe-latent", "mamba", "glm-dsa", "llama4", "apertus"),
    *("stablelm-parallel", "gptneox", "minicpm3", "ernie4_5-moe", "smallthinker", "bailingmoe3-limits", "mimo2"),
    "phimoe",
)
"""Cases that have each operation in each way that any case asks for it.

Each other case costs `test_logits` alone, which sees to it that it asks for no more than these do; the rest of its
tests are slow.
"""
ON_THE_CPU = tuple(name for name in FAMILIES if name not in ("gpt-oss", "deepseek2"))
"""Those whose native kernels run by default: what else kinds ask for, sinks among it, `tests/backends/cpu` and
`tests/kernels` try by the operation. Kimi Linear has latent attention, too.
"""


def soon(names: Collection[str], cases: Iterable[str] = CASES) -> list[Any]:
    """See `helpers.soon`."""
    return helpers.soon(names, cases)


NOT_JUDGED = (
    "deepseek2-lite", "llama-windows", "mistral3-windows", "exaone4-windows", "minicpm-old", "starcoder2-windows",
    "kimi-linear-kv-together", "phimoe", "deepseek4",
)  # fmt: skip
JUDGED: dict[str, Case] = {name: case for name, case in CASES.items() if name not in NOT_JUDGED}
"""What llama.cpp is asked about; it has no windows in two of these architectures, and turns a factor of the third
round where the file has none.
"""
JUDGED |= deepseek2.LITE_AS_SOLD | deepseek4.AS_SOLD | plain.LARGE_AS_SOLD
