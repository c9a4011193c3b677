"""Every family in the tests' own words: a model to make up and its float64 formulas.

`CASES` names them all. The formulas were compared with llama.cpp (`test_llamacpp.py`), not with the code under test.
"""

from __future__ import annotations

from tests.models.families import deepseek2, dense, gemma2, gemma3, gemma4, glm, gpt_oss, lfm2, olmo2, qwen35, qwen_moe
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
}

NOT_JUDGED = ("deepseek2-lite", "llama-windows", "mistral3-windows")
JUDGED: dict[str, Case] = {name: case for name, case in CASES.items() if name not in NOT_JUDGED}
"""What llama.cpp is asked about; it has no windows in two of these architectures."""
JUDGED |= deepseek2.LITE_AS_SOLD
