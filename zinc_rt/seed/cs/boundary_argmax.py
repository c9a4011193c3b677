"""The better of two tokens, and the best of a range of scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from zinc_rt.seed.cs.boundary_programs import pair
from zinc_rt.seed.cs.boundary_staging import NO_ID, bits_of, check_room, run, token, vector
from zinc_rt.seed.cs.errors import ArgmaxRangeInvalidToken, ArgmaxTop2InvalidToken, ShapeMismatch
from zinc_rt.seed.cs.results import ArgmaxRangeResult
from zinc_rt.seed.cs.sentinels import BoundaryOperation, key_of_bits

if TYPE_CHECKING:
    from zinc_rt.seed.cs.boundary import TokenBoundary

_SIGN = np.uint32(0x8000_0000)


def argmax_top2(boundary: TokenBoundary, token0: int, score0: float, token1: int, score1: float) -> int:
    """See `Operations.argmax_top2`."""
    tokens = token(token0, "token 0"), token(token1, "token 1")
    keys = key_of_bits(bits_of(score0)), key_of_bits(bits_of(score1))
    words = (0, 0, *pair(boundary.output_va), *keys, *tokens)
    found = int(run(boundary, BoundaryOperation.argmax_top2, "argmax_top2", words, lambda: None, 1, (NO_ID,))[0])
    if found not in tokens:
        raise ArgmaxTop2InvalidToken(f"the kernel chose {found}, which is neither {token0} nor {token1}")
    return found


def argmax_f32_range(boundary: TokenBoundary, scores: Any, start_row: int) -> ArgmaxRangeResult:
    """See `Operations.argmax_f32_range`."""
    floats = vector(scores, "the range of scores")
    n, start = len(floats), token(start_row, "the first row")
    if not 0 < n <= NO_ID or start + n - 1 > NO_ID:
        raise ShapeMismatch(f"{n} scores from row {start} on; a range has at least one, and rows are u32")
    check_room(boundary, floats.nbytes, 8)
    bits = floats.view(np.uint32)
    keys = np.where(bits & _SIGN != 0, ~bits, bits ^ _SIGN)

    def stage() -> None:
        boundary.input_map[:n] = keys

    words = (*pair(boundary.input_va), *pair(boundary.output_va), n, start, 0, 0)
    best, key = run(boundary, BoundaryOperation.argmax_range, "argmax_keys", words, stage, 2, (NO_ID,)).tolist()
    if not start <= best < start + n:
        raise ArgmaxRangeInvalidToken(f"the kernel chose row {best}; the range is {start} to {start + n - 1}")
    return ArgmaxRangeResult(best, key)
