"""aarch64 under qemu: the kernels of every format and operation give the reference's bits, on any number of threads.

What is compared stands in the other files of this folder; here it runs as aarch64 code. docs/how/native.md says how.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.backends.cpu import (
    both,
    test_attention,
    test_experts,
    test_graphs,
    test_grouped,
    test_heads,
    test_products,
    test_recurrent,
    test_rows,
    test_whole_models,
)
from tests.backends.cpu.arm import ArmBackend
from tests.backends.cpu.arm_machine import QEMU, Machine
from tests.helpers import write_model
from tests.kernels.material import T
from tests.sampling import test_native
from zinc_rt.gguf import GGMLType
from zinc_rt.lang.target import TARGETS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(QEMU is None, reason="qemu-aarch64 is not installed (Debian: qemu-user)"),
]
LEVELS = tuple(t.name for t in TARGETS.values() if t.arch == "aarch64")
PROCESSES = 3


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    made = Machine(tmp_path_factory.mktemp("qemu"), PROCESSES)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _instead(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the other files ask for a native backend gets an emulated one."""

    def backend(*, isa: str, threads: int, **_: object) -> ArmBackend:
        return ArmBackend(machine, isa, min(threads, PROCESSES))

    kept = cache(lambda isa, threads: backend(isa=isa, threads=threads))
    monkeypatch.setattr(both, "native", kept)
    monkeypatch.setattr("zinc_rt.backends.cpu.backend.CpuBackend", backend)


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_call_takes_its_arguments_in_order_and_returns_a_result(machine: Machine) -> None:
    sub_x2_x3 = machine.place(bytes.fromhex("400003cb c0035fd6"))  # sub x0, x2, x3; ret
    assert machine.call(sub_x2_x3, 1, 20, 300, 4000, 50000, 600000) == (300 - 4000) % 2**64


@pytest.mark.parametrize("kind", test_products.FORMATS, ids=lambda k: k.name)
def test_products_of_every_format(kind: GGMLType, level: str) -> None:
    for i, (case, want) in enumerate(test_products.cases(kind)):
        both.check(case, want, level, 1 + i % PROCESSES)
    for threads in (1, PROCESSES):
        both.check(*test_products.many_rows(kind), level, threads)


def test_products_that_share_and_choose_rows(level: str) -> None:
    both.check(*test_products.shared_activations(), level, 2)
    both.check(*test_products.wanted_rows(GGMLType.Q6_K), level, 2)
    both.check(*test_products.unnormed_head(), level, 2)


@pytest.mark.parametrize("shape", test_attention.SHAPES, ids=str)
def test_attentions(shape: tuple[int, int, int], level: str) -> None:
    test_attention.test_attention(shape, level)


@pytest.mark.parametrize("name", test_attention.MORE)
def test_windows_caps_sinks_and_widths(name: str, level: str) -> None:
    test_attention.test_windows_caps_sinks_and_widths(name, level)


@pytest.mark.parametrize("name", test_attention.Q8)
def test_caches_of_blocks(name: str, level: str) -> None:
    test_attention.test_caches_of_blocks(name, level)


@pytest.mark.parametrize("shape", test_heads.ROPES, ids=str)
def test_norm_and_rotation(shape: tuple[int, int, bool, int], level: str) -> None:
    test_heads.test_norm_and_rotation(shape, level)
    if shape in test_heads.ROPES[:4]:
        test_heads.test_into_the_cache(shape, level)


@pytest.mark.parametrize("shape", test_heads.BLOCKS, ids=str)
def test_into_a_cache_of_blocks(shape: tuple[int, int, bool, int], level: str) -> None:
    test_heads.test_into_a_cache_of_blocks(shape, level)


@pytest.mark.parametrize("name", test_rows.CASES)
def test_operations_on_rows(name: str, level: str) -> None:
    test_rows.test_rows(name, level)


@pytest.mark.parametrize("name", test_recurrent.CASES)
def test_recurrent_layers(name: str, level: str) -> None:
    test_recurrent.test_recurrent(name, level)


@pytest.mark.parametrize("name", test_experts.TOPK)
def test_choices_of_experts(name: str, level: str) -> None:
    both.check(*test_experts.topk_case(name), level, 2)


@pytest.mark.parametrize(
    "kinds", [(T.Q4_K, T.Q4_K, T.Q6_K), (T.MXFP4, T.MXFP4, T.Q8_0), (T.Q8_0, T.Q8_0, T.F32)], ids=str
)
def test_experts_of_formats(kinds: tuple[GGMLType, ...], level: str) -> None:
    case = test_experts.experts_case(kinds, 6, 2, 256, 256, biases=True, n_rows=(1, 3, 40))
    test_experts.checked(case, threads=(1, 2), levels=(level,))


@pytest.mark.parametrize("shape", test_grouped.SHAPES, ids=str)
def test_parts_of_rows(shape: tuple[GGMLType, int, int, int], level: str) -> None:
    test_grouped.test_kernels(shape, level)


@pytest.mark.parametrize("seed", range(30, 60))
def test_random_graphs(seed: int, level: str) -> None:
    test_graphs.test_many_random_graphs(seed, level)


@pytest.mark.parametrize("name", ["llama-q4_k_m", "qwen3-q8_0", "qwen2-q5_1-bf16"])
def test_whole_texts(name: str, level: str, tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.gguf", test_whole_models.SPECS[name]).path
    test_whole_models.test_chunks(path, level)


def test_sampled_tokens(machine: Machine, level: str) -> None:
    backend = ArmBackend(machine, level, 2)
    native = object.__new__(test_native.Native)
    native.library, native.runner, native.kernel = backend.library, backend.runner, backend.choice.sample()
    with backend.inside():
        for shape in test_native.SHAPES:
            test_native.test_large_vocabularies(native, shape)
        test_native.test_many_rows_of_one_step(native)
