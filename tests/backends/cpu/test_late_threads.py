"""A thread that is stopped in the middle of its units: others do them again, and nothing that it writes lands late."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from tests.late_kernels import LONG, SHORT, LateArgs, passing, rewriting, stopping
from zinc_rt.backends.cpu.late import NEVER, first_writers, safe_distances
from zinc_rt.backends.cpu.program import CpuOperation, CpuProgram, Runner, UnitsPer, plain_step
from zinc_rt.engine.engine import Engine, Options, SequenceChunk
from zinc_rt.gguf import GGUFFile
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.lang.library import Library
from zinc_rt.lang.target import host_target
from zinc_rt.llm.load import built_in_model
from zinc_rt.models import define

UNITS = 64


@pytest.fixture(scope="module")
def library() -> Library:
    return Library(host_target(), CompileCache(default_cache_dir()))


def made(library: Library, chosen: int, patience: int = SHORT) -> tuple[CpuProgram, dict[str, np.ndarray]]:
    """y = 3 x, with a thread stopped at a unit; z = y; y = 5 x."""
    memory = {name: np.zeros(UNITS, np.int64) for name in "xyz"} | {"gate": np.zeros(8, np.uint64)}
    memory["x"][:] = np.arange(1, UNITS + 1)

    def op(fn, x: str, y: str, factor: int, phase: int, units: int, *, again: bool = False) -> CpuOperation:
        arguments = {"x": memory[x], "y": memory[y], "gate": memory["gate"], "chosen": chosen, "factor": factor}
        arguments |= {"patience": patience}
        return CpuOperation(
            fn.name, "test", (fn, {}), LateArgs, arguments, units, UnitsPer.ONCE, (x,), (y,),
            bytes=units << 15 if again else 0, again=again, phase=phase,
        )  # fmt: skip

    operations = [
        op(stopping, "x", "y", 3, 0, UNITS, again=True),
        op(passing, "y", "z", 1, 1, UNITS),
        op(rewriting, "x", "y", 5, 2, 1),
    ]
    program = CpuProgram.build(operations, plain_step(), library, 2)
    program.allow_again(8, [o.arguments for o in operations])
    program.prepare(n_rows=1, n_logits=1, splits=0, attention=0)
    return program, memory


@pytest.mark.parametrize("chosen", [0, 17, 40, UNITS - 1])
def test_units_of_a_stopped_thread_are_done_by_another_and_none_is_written_late(library: Library, chosen: int) -> None:
    program, memory = made(library, chosen)
    runner = Runner(library, 2)
    library.load(runner.kernels())
    try:
        runner.run(program)
        gate = memory["gate"].tolist()  # at once: what a late thread does after the step would not be in it
        assert gate[0] == 1, "no thread was stopped"
        assert gate[6] == 0, "the next phase waited for the stopped thread"
        assert gate[5] == 1, "the step ended before the late thread was through, whose memory it writes"
        assert gate[4] == 0, "the late thread wrote after a later phase had"
        assert (memory["z"] == 3 * memory["x"]).all()
        assert (memory["y"] == 5 * memory["x"]).all()
        # And again, with nobody stopped: the program is as it was.
        memory["y"][:] = memory["z"][:] = 0
        runner.run(program)
        assert (memory["z"] == 3 * memory["x"]).all()
        assert (memory["y"] == 5 * memory["x"]).all()
    finally:
        runner.close()


def test_a_thread_that_is_late_in_the_next_step_is_waited_for_where_that_writes_its_memory(library: Library) -> None:
    program, memory = made(library, 17)
    program.words["n_phases"] = 1  # nothing lets the stopped thread go on
    runner = Runner(library, 2)
    library.load(runner.kernels())

    def let_go() -> None:
        time.sleep(0.1)
        memory["gate"][1] = 1

    try:
        for rows in (1, 2):  # the next step alike: it waits itself; another size: `prepare` does
            memory["gate"][:] = memory["y"][:] = 0
            helper = threading.Thread(target=let_go)
            helper.start()
            runner.run(program)
            # Where this very thread was stopped it returns when it is through, and nobody is late.
            late_before = int(program.flights[0])
            program.prepare(n_rows=rows, n_logits=1, splits=0, attention=0)
            if rows == 2:
                assert program.flights[0] == 0
            runner.run(program)
            if late_before:
                assert memory["gate"][5] == 1
            assert (memory["y"] == 3 * memory["x"]).all()
            helper.join()
    finally:
        runner.close()


def test_without_the_rule_a_write_does_land_late(library: Library) -> None:
    """So the test above can fail. The late thread waits until it is overtaken, however busy the machine is."""
    runner = Runner(library, 2)
    library.load(runner.kernels())
    try:
        program, memory = made(library, 17, LONG)
        assert program.phases["safe"].tolist()[:3] == [NEVER, NEVER, 1]
        program.phases["safe"][2] = NEVER
        runner.run(program)
        assert memory["gate"][0] == 1
        while memory["gate"][5] == 0:  # nothing waits for the late thread
            time.sleep(0.001)
        assert memory["gate"][4] == 1
        assert memory["y"][17] == 3 * memory["x"][17]
    finally:
        runner.close()


def test_distances_are_short_of_the_phase_whose_memory_is_written() -> None:
    def op(phase: int, reads: str, writes: str, again: bool = False) -> CpuOperation:
        return CpuOperation("", "", (stopping, {}), None, {}, 1, 0, tuple(reads), tuple(writes), 0, again, phase)

    product = op(1, "b", "c", again=True)
    program = [op(0, "a", "b"), product, op(2, "c", "d"), op(3, "d", "e"), op(4, "e", "b"), op(5, "e", "d")]
    assert safe_distances(program) == [NEVER, NEVER, NEVER, NEVER, 2, NEVER]
    assert first_writers(program) == [NEVER, 0, NEVER, NEVER, NEVER, NEVER]
    pair = [op(0, "a", "b"), op(1, "b", "c"), op(2, "b", "d", again=True), op(2, "c", "e", again=True)]
    assert first_writers(pair) == [NEVER, NEVER, 0]
    assert first_writers([*pair[:2], pair[3]]) == [NEVER, NEVER, 1]
    assert first_writers([op(0, "a", "b", again=True)]) == [0]
    assert safe_distances([op(0, "a", "b"), op(1, "b", "c"), op(2, "b", "b")]) == [NEVER] * 3


def test_steps_of_few_rows_have_memory_of_their_own_and_give_the_same_bits() -> None:
    """A row alone, the same among rows that are too many for it, and on one thread, where nothing is done again."""
    found = []
    with GGUFFile.open(built_in_model()) as file:
        for threads in (1, 2):
            with Engine(Options(n_ctx=64, threads=threads)) as engine:
                engine.load(file, define(file))
                slot = engine.open_sequence()
                engine.step([SequenceChunk(slot, 0, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])])
                found.append(engine.step([SequenceChunk(slot, 10, [7], (0,))]).logits.copy())
                engine.truncate(slot, 0)
                engine.step([SequenceChunk(slot, 0, [1, 2, 3, 4])])
                engine.step([SequenceChunk(slot, 4, [5])])
                found.append(engine.step([SequenceChunk(slot, 5, [6, 7, 8, 9, 10, 7], (5,))]).logits.copy())
                program = engine._lowered.program
                assert (program.few_rows is None) == (threads == 1)
    assert all((one == found[0]).all() for one in found[1:])
