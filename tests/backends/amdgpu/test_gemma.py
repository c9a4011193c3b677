"""Gemma on an emulated GPU: tables that stay with the host, and tokens sampled from logits under a soft cap."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from amdgpu_emu.core.core import ShaderCore
from tests.amdgpu.queue.stage import machine
from tests.helpers import T, engine_for, logits_of, random_tokens, run_tokens
from tests.models.families import CASES
from tests.models.families.build import write_case
from zinc_rt.backends.gpu.lower import activations
from zinc_rt.engine.engine import Device, SequenceChunk
from zinc_rt.sampling.gpu import DeviceSampled
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.request import SamplingRequest
from zinc_rt.sampling.sampler import Sampler

OPTIONS = {"n_ctx": 64, "n_batch": 3, "device": Device.gpu_kfd}


@pytest.mark.slow
def test_rows_of_tables_that_the_host_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits, less GPU memory; the embedding, which is the head's matrix too, goes to the GPU all the same."""
    case, kind = CASES["gemma4"], T.Q8_0
    path = write_case(tmp_path / "m.gguf", case, kind).path
    tokens = random_tokens(5, 5, 300)
    want = logits_of(path, tokens, n_ctx=64, kernels="reference")
    weights = []
    for least in (activations.HOST_TABLE, 0):
        monkeypatch.setattr(activations, "HOST_TABLE", least)
        with (
            machine(shader=ShaderCore(), time_scale=100.0) as on,
            engine_for(path, linux=on.process(), **OPTIONS) as engine,
        ):
            slot = engine.open_sequence()
            got = np.concatenate([run_tokens(engine, slot, tokens[:3], 3), run_tokens(engine, slot, tokens[3:], 1, 3)])
            assert engine.plan is not None
            weights.append(engine.plan.weights)
        assert (got.view(np.uint32) == want.view(np.uint32)).all()
    n_vocab, width = case.shapes["per_layer_token_embd.weight"]
    assert weights[0] - weights[1] == n_vocab * kind.row_bytes(width)


@pytest.mark.slow
def test_sampling_sees_the_last_logits(tmp_path: Path) -> None:
    """Held under a low cap, logits are nearly alike: from those before it other tokens would be drawn."""
    case = CASES["gemma3-scaled-cap"]
    path = write_case(tmp_path / "m.gguf", replace(case, keys={**case.keys, "final_logit_softcapping": 0.5})).path
    tokens, chosen = random_tokens(6, 3, 300), {}

    def draw(**options: object) -> list[int]:
        with engine_for(path, **{**OPTIONS, **options}) as engine:
            slot, out = engine.open_sequence(), []
            for seed in range(6):
                sampler = Sampler(SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=seed), 320)
                engine.truncate(slot, 0)
                result = engine.step([SequenceChunk(slot, 0, tokens, (2,))], [SamplingRequest(sampler, tokens)])
                assert isinstance(result, DeviceSampled) == ("linux" in options)
                out.append(result.token().token_id)
            return out

    chosen["host"] = draw(device=Device.cpu)
    with machine(shader=ShaderCore(), time_scale=100.0) as on:
        chosen["gpu"] = draw(linux=on.process())
    assert chosen["gpu"] == chosen["host"]
    assert len(set(chosen["host"])) > 3
