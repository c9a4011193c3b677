"""Every family in the tests' own words: a model to make up and its float64 formulas.

`CASES` names them all. The formulas were compared with llama.cpp (`test_llamacpp.py`), not with the code under test.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from tests import helpers
from tests.models.families import (
    deepseek2,
    dense,
    gemma2,
    gemma3,
    gemma4,
    glm,
    gpt_oss,
    lfm2,
    olmo2,
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
    **qwen4exp.CASES,
}

ARCHITECTURES = tuple({case.architecture: name for name, case in reversed(CASES.items())}.values())[::-1]
"""The first case of each architecture; the others differ from it by a key or by how a file holds its matrices."""
_MODULES = (qwen_moe, qwen35, dense, gemma2, gemma4, gpt_oss, lfm2, deepseek2, qwen4exp)
FAMILIES = tuple(next(iter(module.CASES)) for module in _MODULES)
"""A case of each kind of layers: experts, recurrent, dense, windows, shared caches, sinks, latents, streams."""


def soon(names: Collection[str], cases: Iterable[str] = CASES) -> list[Any]:
    """See `helpers.soon`."""
    return helpers.soon(names, cases)


NOT_JUDGED = ("deepseek2-lite", "llama-windows", "mistral3-windows")
JUDGED: dict[str, Case] = {name: case for name, case in CASES.items() if name not in NOT_JUDGED}
"""What llama.cpp is asked about; it has no windows in two of these architectures."""
JUDGED |= deepseek2.LITE_AS_SOLD
