"""An operation is added by files alone: its definition, and a lowering for each backend that is to run it."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.backends.amdgpu.stage import amd_backend
from tests.backends.amdgpu.stage import check as check_gpu
from tests.backends.cpu.both import BEST_AND_LEAST, Case, Net, Step, check, expected
from tests.backends.cpu.hostile import ordinary
from tests.kernels.material import T
from zinc_rt.backends.cpu import lower as cpu_folder
from zinc_rt.backends.cpu.backend import CpuBackend
from zinc_rt.backends.cpu.lowering import CPU
from zinc_rt.backends.gpu import lower as gpu_folder
from zinc_rt.backends.gpu.lowering import GPU
from zinc_rt.errors import BackendError
from zinc_rt.ir import ops
from zinc_rt.ir.builder import GraphBuilder
from zinc_rt.ir.cost import node_cost
from zinc_rt.ir.errors import GraphError
from zinc_rt.ir.op import Op

TOY = Path(__file__).parent / "toy"
NEW = Op.LOAD_REQUEST_STATE  # a number of the table that nothing runs yet


@pytest.fixture(scope="module", autouse=True)
def toy() -> Iterator[None]:
    """The folders of the package with one file more each, read anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ops, "__path__", [*ops.__path__, str(TOY / "ir")])
        patch.setitem(ops.DEFINITIONS, NEW, ops.collect()[NEW])
        for table, folder, name in ((CPU, cpu_folder, "cpu"), (GPU, gpu_folder, "gpu")):
            table.collect()
            patch.setattr(table, "_known", dict(table._known))
            patch.setattr(folder, "__path__", [*folder.__path__, str(TOY / name)])
            table.collect()
        yield


@cache
def case() -> Case:
    """Rows of 40 elements: by default, with another factor, and with a shift; then through a product."""
    rng = np.random.default_rng(5)
    net = Net(5)
    x, y, z = net.rows("x", 40), net.temp(40), net.temp(40)
    net.node(NEW, [x], [y])
    net.node(NEW, [y, net.vector(rng.standard_normal(40))], [z], factor=-0.375)
    net.node(NEW, [z], [net.out("scaled", 40)], factor=3.0)
    net.node(
        Op.MATMUL, [z, net.matrix(T.F32, rng.standard_normal((8, 40), np.float32).view(np.uint8))], [net.out("p", 8)]
    )
    return net.case([Step(n, {"x": ordinary(rng, n, 40)}) for n in (1, 5, 3)])


def test_the_reference_runs_it() -> None:
    (step, *_), (outputs, *_) = case().steps, expected(case())
    (shift,) = (w.view(np.float32) for w in case().weights.values() if w.shape == (1, 160))
    x = np.asarray(step.inputs["x"])
    want = ((x * np.float32(2.0)) * np.float32(-0.375) + shift) * np.float32(3.0)
    assert (outputs["scaled"][:1].view(np.float32) == want).all()


@pytest.mark.parametrize("isa", BEST_AND_LEAST)
def test_the_cpu_runs_it(isa: str) -> None:
    check(case(), expected(case()), isa, 2)


def test_the_gpu_runs_it() -> None:
    with amd_backend() as (backend, _):
        check_gpu(backend, case(), expected(case()))


def test_its_costs_and_attributes_are_known() -> None:
    graph = case().graph
    plain, shifted, *_ = graph.nodes
    assert [node_cost(graph, n).operations for n in (plain, shifted)] == [40, 80]
    assert plain.attrs == {}
    assert ops.attributes(plain) == {"factor": 2.0}
    assert ops.attributes(shifted) == {"factor": -0.375}


def test_the_verifier_knows_it() -> None:
    for wrong, inputs, attrs in (
        ("attribute 'factor' is 2, expected float", 1, {"factor": 2}),
        ("attribute 'shift' is unknown, the operation has factor", 1, {"shift": 1.0}),
        ("has 3 inputs, expected 1", 3, {}),
    ):
        b = GraphBuilder("g")
        x, w = b.buffer("x", "input", "f32", ["n_rows", 8]), b.buffer("w", "weight", "f32", [8])
        b.node(NEW, [x, w, w][:inputs], [b.buffer("y", "output", "f32", ["n_rows", 8])], **attrs)
        if inputs == 1:
            b.node(Op.BIAS_ADD, [x, w], [b.buffer("z", "output", "f32", ["n_rows", 8])])
        with pytest.raises(GraphError, match=rf"load_request_state.*{wrong}"):
            b.build()


def test_what_is_defined_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="has a lowering"):
        CPU.lowers(NEW)(lambda low, node: None)
    with pytest.MonkeyPatch.context() as patch:
        again = importlib.import_module("zinc_rt.ir.ops.scaled").OPS
        patch.setattr("zinc_rt.ir.ops.barrier.OPS", again)
        with pytest.raises(ValueError, match="LOAD_REQUEST_STATE is defined twice"):
            ops.collect()


def test_a_backend_without_a_lowering_refuses_it() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CPU, "_known", {key: f for key, f in CPU._known.items() if key is not NEW})
        with CpuBackend(threads=1) as backend, pytest.raises(BackendError, match="LOAD_REQUEST_STATE"):
            backend.plan(case().graph, case().sizes)


def test_the_page_lists_the_files() -> None:
    """At most five, all of which exist, and the tests' own operation has one in each folder of them."""
    root = Path(__file__).parents[2]
    page = (root / "docs/how/extending.md").read_text(encoding="utf-8")
    section = page.split("## An op\n")[1].split("\n## ")[0]
    listed = re.findall(r"^\| `(zinc_rt/\S+)` \|", section, re.M)
    assert len(listed) == 5
    folders = {file.removesuffix("/NAME.py") for file in listed if file.endswith("/NAME.py")}
    for file in listed:
        assert (root / file.removesuffix("NAME.py")).exists(), file
    collected = {
        Path(p).relative_to(root).as_posix() for m in (ops, cpu_folder, gpu_folder) for p in list(m.__path__)[:1]
    }
    assert folders == collected
    assert {p.parent.name for p in TOY.rglob("scaled.py")} == {
        Path(f.removesuffix("/ops").removesuffix("/lower")).name for f in folders
    }
