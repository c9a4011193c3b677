"""Every family in the tests' own words: a model to make up and its float64 formulas.

`CASES` names them all. The formulas were compared with llama.cpp (`test_llamacpp.py`), not with the code under test.
"""

from __future__ import annotations

from tests.models.families import dense, glm, olmo2, qwen35, qwen_moe
from tests.models.families.build import Case

CASES: dict[str, Case] = {
    **qwen_moe.CASES,
    **qwen35.CASES,
    **dense.CASES,
    **olmo2.CASES,
    **glm.CASES,
}
