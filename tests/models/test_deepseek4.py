"""DeepSeek-V4 over many positions: texts that share a beginning, cut within blocks, on the CPU's kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.helpers import engine_for, logits_of, random_tokens, run_tokens, soon
from tests.models.families.build import N_VOCAB, write_case
from tests.models.families.common import Net, without_ties
from tests.models.families.deepseek4 import AS_SOLD, CASES
from tests.models.test_logits import quietest_row
from tests.models.truth import error
from zinc_rt.backends.select import KERNELS, Kernels


@pytest.mark.parametrize("kernels", soon(("reference",), KERNELS))
@pytest.mark.parametrize(
    ("name", "shared", "length"),
    [("deepseek4", 16, 27), pytest.param("deepseek4-as-sold", 80, 300, marks=pytest.mark.slow)],
)
def test_texts_that_share_a_beginning(name: str, shared: int, length: int, kernels: Kernels, tmp_path: Path) -> None:
    """The second takes the first one's pages, and the state of a block that is not complete; the first goes back.

    `test_families.py` has the bits of the CPU's kernels.
    """
    case = (CASES | AS_SOLD)[name]
    made = write_case(tmp_path / "model.gguf", case)
    first = without_ties(made, random_tokens(3, length, N_VOCAB - 2))
    second = first[:shared] + random_tokens(4, length - shared, N_VOCAB - 2)
    with engine_for(made.path, n_batch=32, n_slots=2, n_ctx=512, kernels=kernels) as engine:
        fresh = [run_tokens(engine, engine.open_sequence(salt=None), text, 32) for text in (first, second)]
    assert error(fresh[0], Net(made).logits(first)) < 1e-3
    with engine_for(made.path, n_batch=32, n_slots=2, n_ctx=512, kernels=kernels) as engine:
        slot = engine.open_sequence()
        run_tokens(engine, slot, first[:shared], 7)
        engine.cache.checkpoint(slot)
        run_tokens(engine, slot, first[shared:], 9, shared)
        other = engine.open_sequence(second)
        assert engine.cache.length(other) == shared
        got = run_tokens(engine, other, second[shared:], 5, shared)
        np.testing.assert_array_equal(got.view(np.uint32), fresh[1][shared:].view(np.uint32))
        assert engine.truncate(slot, shared + 3) == shared
        got = run_tokens(engine, slot, first[shared:], 32, shared)
        np.testing.assert_array_equal(got.view(np.uint32), fresh[0][shared:].view(np.uint32))
        engine.cache.check_integrity()


@pytest.mark.slow
def test_blocks_of_128(tmp_path: Path) -> None:
    """Two whole blocks and part of a third, by the formulas; all kernels alike."""
    made = write_case(tmp_path / "model.gguf", AS_SOLD["deepseek4-as-sold"])
    tokens = without_ties(made, random_tokens(3, 300, N_VOCAB - 2))
    got = logits_of(made.path, tokens, n_ctx=512, kernels="reference")
    want = Net(made).logits(tokens)
    assert error(got, want) < 1e-3
    assert quietest_row(got, want) < 2e-6
    np.testing.assert_array_equal(got.view(np.uint32), logits_of(made.path, tokens, n_ctx=512).view(np.uint32))
