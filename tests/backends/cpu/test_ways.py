"""How products of many rows are computed: what is measured, what is refused, what is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.backends.cpu.both import Net, Step, compare, expected, outputs
from tests.kernels import material as m
from zinc_rt.backends.cpu import contest, ways
from zinc_rt.backends.cpu.backend import CpuBackend
from zinc_rt.backends.cpu.choice import TargetTuning, Ways
from zinc_rt.backends.cpu.contest import LEAST_ROUNDS, ROUNDS, medians, winner
from zinc_rt.backends.cpu.selftest import ProductTrial
from zinc_rt.backends.cpu.ways import WaysOfProducts, in_words
from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGMLType
from zinc_rt.ir.op import Op
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.lang.library import Library
from zinc_rt.lang.target import TARGETS, host_targets
from zinc_rt.utils.environment import MATRIX_ROWS

KIND = GGMLType.Q4_0


def nothing() -> None:
    """A contestant."""


def test_the_median_of_alternating_runs_counts() -> None:
    order: list[object] = []

    def timer(name: object, call: Callable[[], None]) -> float:
        call()
        order.append(name)
        turn = len(order) // 2
        return 0.9 if turn % 4 == 0 else {"a": 2e-3, "b": 1e-3}[str(name)]  # now and then the core was taken away

    assert medians({"a": nothing, "b": nothing}, timer) == {"a": 2e-3, "b": 1e-3}
    assert order == ["a", "b"] * (LEAST_ROUNDS + 1)  # too long by then: a first round, and the least
    order.clear()
    assert set(medians({"a": nothing}, lambda name, call: order.append(name) or 1e-4)) == {"a"}
    assert len(order) == ROUNDS + 1


def test_a_tie_goes_to_what_is_named_first() -> None:
    assert winner({0: 1.0, 1: 0.98, 2: 1.2}) == 0
    assert winner({0: 1.0, 1: 0.9, 2: 0.89}) == 1
    assert winner({0: 1.0, 1: 0.9, 2: 0.8}) == 2


class Notes(CompileCache):
    """The session's compiled kernels, with notes of their own."""

    def __init__(self, folder: Path, notify: Callable[[str], None] | None = None) -> None:
        super().__init__(default_cache_dir())
        self.notes = CompileCache(folder, notify=notify)

    def note(self, key: str) -> dict[str, Any] | None:
        return self.notes.note(key)

    def put_note(self, key: str, tree: dict[str, Any]) -> None:
        self.notes.put_note(key, tree)


def times(few: tuple[float, ...], many: tuple[float, ...]) -> contest.Timer:
    """A clock by which the contests of few rows, then of many, take so long, by blocks at once."""
    begun: list[object] = []

    def timer(name: object, call: Callable[[], None]) -> float:
        assert isinstance(name, int)
        if name == 0:
            begun.append(name)
        return (few if len(begun) <= ROUNDS + 1 else many)[name]

    return timer


def never(name: object, call: Callable[[], None]) -> float:
    raise AssertionError(f"{name} was measured")


@pytest.fixture
def tuning() -> TargetTuning:
    usable = [t for t in host_targets() if "vnni" in t.isa]
    if not usable:
        pytest.skip("the path needs 512-bit vectors with byte dot products")
    return replace(TargetTuning.of(usable[-1]), tiles="emulated")


@pytest.fixture
def chooser(tmp_path: Path, tuning: TargetTuning) -> Callable[..., WaysOfProducts]:
    """Makes choosers that keep notes in one folder, as starts one after another do."""
    target = [t for t in host_targets() if "vnni" in t.isa][-1]

    def make(timer: contest.Timer, notify: Callable[[str], None] | None = None) -> WaysOfProducts:
        return WaysOfProducts(Library(target, Notes(tmp_path / "notes", notify)), notify, timer)

    return make


@pytest.mark.parametrize(
    ("few", "many", "taken"),
    [
        ((1e-3, 5e-4), (4e-3, 2e-3, 1e-3), Ways(1, 2)),
        ((1e-3, 5e-4), (4e-3, 2e-3, 2e-3), Ways(1, 1)),
        ((1e-3, 2e-3), (4e-3, 5e-3, 3e-3), Ways(0, 2)),
        ((1e-3, 1e-3), (4e-3, 4e-3, 4e-3), Ways(0, 0)),
    ],
)
def test_the_faster_way_is_taken_and_kept(
    few: tuple[float, ...],
    many: tuple[float, ...],
    taken: Ways,
    chooser: Any,
    tuning: TargetTuning,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = chooser(times(few, many))
    assert first.kept(tuning, [KIND], 64) == replace(tuning, ways=())
    assert first.chosen(tuning, [KIND, GGMLType.F16], 64).ways == (("Q4_0", taken),)
    assert first.measured == 1
    monkeypatch.setattr(ProductTrial, "product", lambda *_: pytest.fail("a kept choice was tried again"))
    second = chooser(never)
    assert second.kept(tuning, [KIND], 64).ways == second.chosen(tuning, [KIND], 64).ways == (("Q4_0", taken),)
    assert second.measured == 0


def test_a_wrong_way_is_refused_whatever_its_speed(
    chooser: Any, tuning: TargetTuning, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = ProductTrial.product

    def wrong(self: ProductTrial, choice: TargetTuning, rows: int) -> np.ndarray:
        y = original(self, choice, rows)
        if choice.ways_of(self.kind).large == 2 and rows > 32:
            y[31, 0] = np.nextafter(y[31, 0], np.float32(np.inf))
        return y

    monkeypatch.setattr(ProductTrial, "product", wrong)
    for timer in (times((1e-3, 5e-4), (4e-3, 2e-3, 1e-9)), never):  # measured, then kept: said both times
        said: list[str] = []
        found = chooser(timer, said.append)
        assert found.chosen(tuning, [KIND], 64).ways == (("Q4_0", Ways(1, 1)),)
        assert said == ["matrix registers gave wrong products of Q4_0, 32 rows at once, and are not used for them so"]
        assert "wrong products of 32 rows at once" in in_words(found.recall(tuning, KIND))


@pytest.mark.parametrize("damage", ["a byte", "cut off", "other times", "no times", "an unknown way"])
def test_a_damaged_choice_is_measured_again(
    damage: str, chooser: Any, tuning: TargetTuning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProductTrial, "agrees", lambda *_: True)
    measure = times((1e-3, 5e-4), (4e-3, 2e-3, 1e-3))
    first = chooser(measure)
    first.chosen(tuning, [KIND], 64)
    (file,) = (tmp_path / "notes").iterdir()
    said: list[str] = []
    if damage == "a byte":
        data = bytearray(file.read_bytes())
        data[-3] ^= 1
        file.write_bytes(data)
    elif damage == "cut off":
        file.write_bytes(file.read_bytes()[:-1])
    else:
        tree = first.recall(tuning, KIND).note()
        change = {
            "other times": {"many": [[0, 1.0], [1, -1.0], [2, 1.0]]},
            "no times": {"few": []},
            "an unknown way": {"few": [[0, 1.0], [7, 0.1]]},
        }
        Notes(tmp_path / "notes").put_note(file.name, {**tree, **change[damage]})
    again = chooser(times((1e-3, 5e-4), (4e-3, 2e-3, 1e-3)), said.append)
    assert again.kept(tuning, [KIND], 64).ways == ()
    assert again.chosen(tuning, [KIND], 64).ways == (("Q4_0", Ways(1, 2)),)
    assert again.measured == 1
    assert len(said) == (damage in ("a byte", "cut off"))
    assert all("measured again" in line for line in said)
    assert chooser(never).chosen(tuning, [KIND], 64).ways == (("Q4_0", Ways(1, 2)),)


def test_another_processor_is_measured_by_itself(
    chooser: Any, tuning: TargetTuning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProductTrial, "agrees", lambda *_: True)
    chooser(times((1e-3, 5e-4), (4e-3, 2e-3, 1e-3))).chosen(tuning, [KIND], 64)
    monkeypatch.setattr(ways, "processor_identity", lambda: "model name=another")
    other = chooser(times((1e-3, 2e-3), (4e-3, 5e-3, 6e-3)))
    assert other.chosen(tuning, [KIND], 64).ways == (("Q4_0", Ways(0, 0)),)
    assert other.measured == 1


def test_nothing_is_measured_where_there_is_nothing_to_choose(chooser: Any, tuning: TargetTuning) -> None:
    nobody = chooser(never)
    assert nobody.chosen(tuning, [KIND], 15).ways == ()
    assert nobody.chosen(tuning, [GGMLType.F32, GGMLType.BF16], 64).ways == ()
    assert nobody.chosen(TargetTuning.of(TARGETS["avx512vnni"]), [KIND], 64).ways == ()
    assert nobody.measured == 0


def test_the_variable_says_which_way(chooser: Any, tuning: TargetTuning, monkeypatch: pytest.MonkeyPatch) -> None:
    for value, taken in (("0", Ways(0, 0)), ("16", Ways(1, 1)), ("32", Ways(1, 2))):
        monkeypatch.setenv(MATRIX_ROWS.name, value)
        assert chooser(never).chosen(tuning, [KIND], 64).ways == (("Q4_0", taken),)
    said: list[str] = []
    monkeypatch.setattr(ProductTrial, "agrees", lambda *_: False)
    assert chooser(never, said.append).chosen(tuning, [KIND], 64).ways == (("Q4_0", Ways(0, 0)),)
    assert "wrong products of Q4_0" in said[0]
    monkeypatch.setenv(MATRIX_ROWS.name, "8")
    with pytest.raises(UsageError, match="ZINC_RT_MATRIX_ROWS is '8'; it must be 0, 16 or 32"):
        chooser(never).chosen(tuning, [KIND], 64)


def test_a_graph_is_the_same_in_matrix_registers(tuning: TargetTuning, chooser: Any) -> None:
    rng = np.random.default_rng(5)
    n, n_out, n_rows = 1280, 37, 53
    raw = m.adversarial_rows(KIND, rng, n_out, n)
    raw.reshape(n_out, -1, 18)[7, :, 1] |= 0x80  # a row of negative scales: nothing times them is -0 everywhere
    net = Net(n_rows)
    net.node(Op.MATMUL, [net.rows("x", n), net.matrix(KIND, raw)], [net.out("y", n_out)])
    given = [m.activations(rng, rows, n) for rows in (53, 16, 31, 3)]
    for x in given:
        x[2] = 0.0
    case = net.case([Step(len(x), {"x": x}) for x in given])
    backend = CpuBackend(isa=[t for t in host_targets() if "vnni" in t.isa][-1].name, threads=2)
    assert backend.choice.ways == ()
    backend.choice = tuning
    backend.ways = chooser(times((1e-3, 5e-4), (4e-3, 2e-3, 1e-3)))
    compare(case, outputs(backend, case), expected(case), "matrix registers")
    plan = backend.plan(case.graph, case.sizes)
    assert backend.tune(plan).tuning.ways == (("Q4_0", Ways(1, 2)),)
    assert backend.choice == tuning
    backend.close()


def test_words_say_what_is_used_and_what_it_gains() -> None:
    found = ways.WaysFound.of({0: 1e-3, 1: 2e-3}, {0: 4e-3, 1: 3e-3, 2: 2e-3}, [])
    assert in_words(found) == (
        "16 rows in vectors (2.00 x as fast as matrix registers);"
        " 32 and more in matrix registers, 32 at once (2.00 x as fast as vectors)"
    )
