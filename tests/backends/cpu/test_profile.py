"""Profiles: what is recorded adds up, and the trace is what viewers read."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import numpy as np
import pytest

from zinc_rt.backends.arg_structs import table as records_of
from zinc_rt.backends.cpu import profile as profiles
from zinc_rt.backends.cpu.profile import PROMPT, TEXT, CpuProfile, ticks
from zinc_rt.backends.cpu.profile_phases import PhaseSums, Reading, phase_lines
from zinc_rt.backends.cpu.program import CpuOperation
from zinc_rt.cli.errors import CommandError
from zinc_rt.cli.files import write_file
from zinc_rt.engine.engine import Engine, Options, SequenceChunk
from zinc_rt.errors import BackendError
from zinc_rt.gguf import GGUFFile
from zinc_rt.kernels.cpu.program import EventRecord
from zinc_rt.llm.load import built_in_model
from zinc_rt.models import define


def recorded(threads: int, steps: int = 3) -> tuple[CpuProfile, Engine]:
    with GGUFFile.open(built_in_model()) as file:
        engine = Engine(Options(n_ctx=64, threads=threads))
        engine.load(file, define(file))
        slot = engine.open_sequence()
        engine.start_profile()
        engine.step([SequenceChunk(slot, 0, [1, 2, 3, 4, 5], (4,))])
        for i in range(steps):
            engine.step([SequenceChunk(slot, 5 + i, [7], (0,))])
        return engine.finish_profile(), engine


@pytest.mark.parametrize("threads", [1, 2])
def test_every_unit_of_every_operation_is_recorded_once(threads: int) -> None:
    profile, engine = recorded(threads)
    with engine:
        assert profile.dropped == 0
        assert profile.tables[PROMPT].steps == 1
        assert profile.tables[TEXT].steps == 3
        heads = [e for e in profile.events if e.name == "lm_head"]
        n_vocab = engine.step([SequenceChunk(0, 8, [1], (0,))]).logits.shape[1]
        assert sum(e.units for e in heads) == 4 * -(-n_vocab // 16)
        for table in profile.tables.values():
            assert sum(row.seconds for row in table.rows) <= table.seconds * threads * 1.001
            products = next(row for row in table.rows if row.kind == "matmul")
            assert products.bytes % table.steps == 0
        per_step = [next(r for r in t.rows if r.kind == "lm_head").bytes / t.steps for t in profile.tables.values()]
        assert per_step[0] == per_step[1] > 0
        # Without a profile the same engine runs on, and starts another one.
        engine.start_profile()
        engine.step([SequenceChunk(0, 9, [1], (0,))])
        assert engine.finish_profile().tables.keys() == {TEXT}


def test_the_trace_has_a_span_for_each_event_in_order() -> None:
    profile, engine = recorded(2)
    engine.close()
    trace = json.loads(profile.chrome_trace())["traceEvents"]
    names = [e for e in trace if e["ph"] == "M"]
    spans = [e for e in trace if e["ph"] == "X"]
    assert len(names) + len(spans) == len(trace)
    assert len(spans) == len(profile.events)
    assert all(s["dur"] >= 0 and s["ts"] >= 0 for s in spans)
    assert {"blk.0.attn_q.matmul", "embed", "argmax"} <= {s["name"] for s in spans}
    assert {n["args"]["name"] for n in names} <= {"caller", "worker 1"}
    assert {s["tid"] for s in spans} <= {n["tid"] for n in names}
    for thread in {s["tid"] for s in spans}:
        mine = sorted((s for s in spans if s["tid"] == thread), key=lambda s: s["ts"])
        assert all(a["ts"] + a["dur"] <= b["ts"] + 0.01 for a, b in itertools.pairwise(mine))


def test_tables_add_up() -> None:
    profile, engine = recorded(2, steps=4)
    with engine:
        for sort, n_rows, last in ((PROMPT, 5, 5), (TEXT, 1, 9)):
            table = profile.tables[sort]
            assert table.threads == 2
            rows = {row.kind: row for row in table.rows}
            assert sum(row.seconds for row in table.rows) == pytest.approx(sum(table.busy.values()))
            assert table.waiting + sum(table.busy.values()) == pytest.approx(2 * table.seconds)
            assert rows["lm_head"].calls == rows["embed"].calls == table.steps
            # Weights and cache of all operations are what the engine says a step of one row reads.
            read = sum(row.bytes for row in table.rows) - rows["attention"].bytes
            assert read == pytest.approx(engine.step_bytes(0) * table.steps, rel=0.05)
            positions = sum(range(last - table.steps + 1, last + 1)) if n_rows == 1 else 5
            cached = engine.step_bytes(16 * 1024) - engine.step_bytes(0)
            assert rows["attention"].bytes == pytest.approx(cached / 16 / 1024 * positions, rel=0.01)


@pytest.mark.parametrize("threads", [1, 2])
def test_phases_cut_a_step_into_stretches_that_add_up(threads: int) -> None:
    profile, engine = recorded(threads, steps=4)
    with engine:
        for found in profile.tables.values():
            reading = found.reading
            assert sum(row.seconds for row in found.phases) == pytest.approx(found.seconds, rel=1e-9)
            assert reading.all + reading.some + reading.none == pytest.approx(found.seconds, rel=1e-9)
            assert sum(row.idle for row in found.phases) == pytest.approx(reading.none, rel=1e-9)
            assert all(0 <= row.idle <= row.seconds for row in found.phases)
            assert sum(row.bytes for row in found.phases) == pytest.approx(
                sum(row.bytes for row in found.rows), rel=1e-6
            )
            rows = {row.label: row for row in found.phases}
            products = rows["matmul attn_q+attn_k+attn_v"]
            assert products.calls % found.steps == 0
            assert products.bytes > 0
            assert products.idle < products.seconds
            assert rows["embed"].idle == rows["embed"].seconds
            assert rows["embed"].calls == found.steps


def test_phases_of_a_made_up_step() -> None:
    """Two threads, times that a reader can add: a norm, then a product that one thread begins late."""
    operations = [
        CpuOperation(name, kind, (ticks, {}), None, {}, 4, 0, bytes=size, phase=phase)
        for phase, (name, kind, size) in enumerate([("blk.0.n.norm", "norm", 0), ("blk.0.q.matmul", "matmul", 800)])
    ]
    events = records_of(EventRecord, 3)
    events[0] = (0, 1, 4, 110, 130)
    events[1] = (1, 1, 3, 140, 170)
    events[2] = (1, 2, 1, 150, 190)
    sums = PhaseSums(operations)
    sums.add(events, 100, 200, np.array([0.0, 600.0, 200.0]))
    assert [(r.label, r.seconds, r.idle, r.calls, r.bytes) for r in sums.rows(1e9)] == [
        ("norm n", 40, 40, 1, 0),
        ("matmul q", 60, 10, 1, 800),
    ]
    assert sums.reading(1e9, 2) == Reading(all=20, some=30, none=50)
    assert (
        "reading weights or cache: all threads 20000.0000 ms"
        in list(phase_lines(sums.rows(1e9), Reading(20, 30, 50), 1))[-1]
    )


def test_events_that_do_not_fit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, engine = recorded(1)
    engine.close()
    monkeypatch.setattr(profiles, "MAX_EVENTS", 10)
    part, engine = recorded(1)
    engine.close()
    assert sum(len(s) for s in part.spans) == 4 * 10
    assert part.dropped == len(whole.events) - 4 * 10
    assert part.untraced == 0
    assert f"{part.dropped} events of long steps did not fit" in list(part.lines())[-1]


def test_a_trace_has_its_limit_and_the_tables_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, engine = recorded(1)
    engine.close()
    monkeypatch.setattr(profiles, "MAX_SPANS", 25)
    part, engine = recorded(1)
    engine.close()
    assert len(part.events) == 25
    assert part.untraced == len(whole.events) - 25
    calls = [[row.calls for row in sorted(p.tables[TEXT].rows, key=lambda r: r.kind)] for p in (whole, part)]
    assert calls[0] == calls[1]
    assert "the trace ends early" in list(part.lines())[-1]


def test_the_table_says_what_a_step_took() -> None:
    profile, engine = recorded(1)
    engine.close()
    text = "\n".join(profile.lines())
    assert "prompt: 1 step, " in text
    assert "text: 3 steps, " in text
    assert "(waiting)" in text
    assert "matmul" in text


def test_the_reference_kernels_record_nothing() -> None:
    with GGUFFile.open(built_in_model()) as file, Engine(Options(n_ctx=64, kernels="reference")) as engine:
        engine.load(file, define(file))
        with pytest.raises(BackendError, match="native kernels"):
            engine.start_profile()
        with pytest.raises(BackendError, match="native kernels"):
            engine.read_bandwidth(1 << 20)


def test_bandwidth_is_a_plausible_speed() -> None:
    with GGUFFile.open(built_in_model()) as file, Engine(Options(n_ctx=64, threads=2)) as engine:
        engine.load(file, define(file))
        assert 0.1 < engine.read_bandwidth(8 << 20) < 10_000
        assert engine.step_bytes(64) > engine.step_bytes(1) > 2_000_000


def test_result_files_are_whole_or_not_there(tmp_path: Path) -> None:
    write_file(tmp_path / "a.json", "{}")
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
    with pytest.raises(CommandError, match="cannot be written"):
        write_file(tmp_path / "no" / "b.json", "{}")


def test_result_files_leave_devices_and_links_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    write_file(tmp_path / "link", "new")
    assert ((tmp_path / "link").is_symlink(), (tmp_path / "target").read_text()) == (True, "new")
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_file(tmp_path / "pipe", "{}")
        assert ((tmp_path / "pipe").is_fifo(), os.read(reader, 9)) == (True, b"{}")
    finally:
        os.close(reader)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "pipe", "target"]
