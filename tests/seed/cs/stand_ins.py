"""The boundary's kernels as Python functions, from what docs/how/kernels.md says that each reads and writes."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np

from amdgpu_emu.shader import Dispatch, RecordingShader
from amdgpu_emu.shader_memory import ShaderMemory
from tests.seed.cs.rows import weights_of
from zinc_rt.gguf import GGMLType
from zinc_rt.kernels.reference.matmul import Weight, matmul
from zinc_rt.seed.cs import TokenBoundary

StandIn = Callable[[Dispatch, ShaderMemory], None]
ROW_BYTES = {"f32": 128, "q4_0": 18, "q8_0": 34}


def _address(dispatch: Dispatch, slot: int) -> int:
    return dispatch.user_data[slot] | dispatch.user_data[slot + 1] << 32


def _write(dispatch: Dispatch, memory: ShaderMemory, *words: int) -> None:
    memory.write(_address(dispatch, 2), struct.pack(f"<{len(words)}I", *words))


def argmax_top2(dispatch: Dispatch, memory: ShaderMemory) -> None:
    key0, key1, token0, token1 = dispatch.user_data[4:8]
    assert dispatch.threads == (1, 1, 1)
    _write(dispatch, memory, token0 if key0 >= key1 else token1)


def argmax_keys(dispatch: Dispatch, memory: ShaderMemory) -> None:
    rows, start = dispatch.user_data[4:6]
    keys = memory.read(_address(dispatch, 0), 4 * rows).view("<u4").tolist()
    best = max(keys)
    _write(dispatch, memory, start + keys.index(best), best)


def rms_norm_element0(dispatch: Dispatch, memory: ShaderMemory) -> None:
    hidden, inverse, weight = memory.read(_address(dispatch, 0), 12).view("<f4")
    with np.errstate(all="ignore"):
        (bits,) = struct.unpack("<I", ((hidden * inverse) * weight).tobytes())
    _write(dispatch, memory, bits)


def _rows(kind: str, dispatch: Dispatch, memory: ShaderMemory) -> np.ndarray:
    cols, rows = dispatch.user_data[6:8]
    x = memory.read(_address(dispatch, 0), 4 * cols).view("<f4")
    at = _address(dispatch, 4)
    assert at % 64 == 0
    raw = memory.read(at, rows * cols // 32 * ROW_BYTES[kind]).tobytes()
    weights = np.array(weights_of(kind, raw, cols), np.float32)
    return matmul(x[None], Weight(GGMLType.F32, weights.view(np.uint8), cols))[0]


def serial(kind: str) -> StandIn:
    """One work-item for all rows."""

    def run(dispatch: Dispatch, memory: ShaderMemory) -> None:
        assert dispatch.threads == (1, 1, 1)
        _write(dispatch, memory, *_rows(kind, dispatch, memory).view(np.uint32).tolist())

    return run


def rows64(kind: str) -> StandIn:
    """One wave of 64."""

    def run(dispatch: Dispatch, memory: ShaderMemory) -> None:
        assert (dispatch.threads, dispatch.wave32) == ((64, 1, 1), False)
        values = _rows(kind, dispatch, memory)
        assert len(values) == 64
        _write(dispatch, memory, *values.view(np.uint32).tolist())

    return run


def dmmv_argmax_q4_0(dispatch: Dispatch, memory: ShaderMemory) -> None:
    best, where = np.float32(-np.inf), 0
    for row, value in enumerate(_rows("q4_0", dispatch, memory)):
        if value > best:
            best, where = value, row
    _write(dispatch, memory, where, int(best.view(np.uint32)))


STAND_INS: dict[str, StandIn] = {
    "argmax_top2": argmax_top2,
    "argmax_keys": argmax_keys,
    "rms_norm_element0": rms_norm_element0,
    "dmmv_serial_f32": serial("f32"),
    "dmmv_serial_q4_0": serial("q4_0"),
    "dmmv_rows_q4_0": rows64("q4_0"),
    "dmmv_argmax_q4_0": dmmv_argmax_q4_0,
    "dmmv_serial_q8_0": serial("q8_0"),
    "dmmv_rows_q8_0": rows64("q8_0"),
}


def install(shader: RecordingShader, boundary: TokenBoundary) -> None:
    """Put them where the boundary's programs are."""
    for name, program in boundary.programs.items():
        shader.add(program.va, STAND_INS[name], wave32=program.kernel.wave == 32)
