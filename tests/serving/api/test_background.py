"""Tasks and threads beside requests: an error that ends one is logged with its trace, and the server says so."""

from __future__ import annotations

import ast
import asyncio
import io
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import zinc_rt
from tests.serving.api.conftest import MakeBench
from tests.serving.test_process import FACTORY, asked, read
from zinc_rt.scheduler.messages import Failed, Fault, StepReport
from zinc_rt.scheduler.output import RequestOutput
from zinc_rt.serving.api.auditing import Auditor
from zinc_rt.serving.api.logs import make_logger
from zinc_rt.serving.background import Background
from zinc_rt.serving.process import ProcessClient
from zinc_rt.serving.records.store import LedgerEntry, RecordStore, RecordWriter
from zinc_rt.serving.wire import Start

ROOT = Path(zinc_rt.__file__).parent
# Functions that make a task or a thread without `Background`, and why nothing is lost there.
OWN = {
    "serving/background.py": {"task", "thread"},
    "serving/engine_process.py": {"main"},  # ends the process, whatever happens in it
    "scheduler/in_process.py": {"post"},  # hands what it raises to all who wait
    "serving/api/call.py": {"attended"},  # the others await what they make, or cancel it with the request
    "serving/api/model_table.py": {"_load", "_wait"},  # hand what they raise to all who wait for the load
    "serving/api/server.py": {"run"},
    "serving/api/sse.py": {"_look"},
    "serving/route/router.py": {"attended"},
    "ray/replica.py": {"answer"},
}
MAKERS = {"create_task", "ensure_future", "Thread", "TaskGroup"}


def makers(tree: ast.AST, inside: str = "") -> set[str]:
    """Functions of a file that make a task or a thread."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        name = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else inside
        if isinstance(node, ast.Call):
            called = node.func
            what = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if what in MAKERS:
                found.add(inside)
        found |= makers(node, name)
    return found


def test_what_runs_beside_requests_is_started_in_one_place() -> None:
    paths = [path for folder in ("serving", "scheduler", "ray") for path in (ROOT / folder).rglob("*.py")]
    found = {str(path.relative_to(ROOT)): makers(ast.parse(path.read_text(encoding="utf-8"))) for path in paths}
    assert {name: made for name, made in found.items() if made} == OWN


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.001)


def logged() -> tuple[Background, Callable[[], str]]:
    """One that logs, and the traces in its log."""
    log = io.StringIO()
    return Background(make_logger(log)), lambda: json.loads(log.getvalue())["trace"]


def test_an_error_of_a_task_or_thread_is_logged_and_kept() -> None:
    def fails() -> None:
        raise KeyError("of a thread")

    async def fails_later() -> None:
        await asyncio.sleep(0)
        fails()

    async def go() -> None:
        found, trace = logged()
        found.thread("one", fails).join()
        assert found.wrong == "zinc-one ended: KeyError: 'of a thread'"
        assert "in fails" in trace()
        found, trace = logged()
        task = found.task("two", fails_later())
        await until(lambda: found.wrong)
        assert str(found.wrong).startswith("zinc-two ended: KeyError")
        assert "in fails_later" in trace()
        assert task.done()

    asyncio.run(go())


def test_a_task_that_is_cancelled_is_no_fault() -> None:
    async def go() -> None:
        found = Background()
        task = found.task("one", asyncio.sleep(3600))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        await asyncio.sleep(0)
        assert found.wrong is None

    asyncio.run(go())


def test_what_still_runs_is_ended_with_the_server() -> None:
    async def go() -> None:
        log = io.StringIO()
        found, held = Background(make_logger(log)), threading.Event()

        def waits() -> None:
            held.wait(60)

        task, thread = found.task("one", asyncio.sleep(3600)), found.thread("two", lambda: time.sleep(0.05))
        await found.close()
        assert task.cancelled()
        assert not thread.is_alive()
        assert not log.getvalue()
        found.join(found.thread("three", waits), 0.001)
        assert json.loads(log.getvalue())["name"] == "zinc-three"
        held.set()
        await found.close()
        assert found.wrong is None

    asyncio.run(go())


def test_records_that_end_by_an_error_are_told(tmp_path: Path) -> None:
    class Broken(RecordStore):
        def add(self, entries: object) -> None:
            raise ValueError("a fault of ours")

    found, trace = logged()
    writer = RecordWriter(Broken(tmp_path / "s"), failed=lambda error: None, background=found)
    writer.put(LedgerEntry("a", 0.0, "t", "e", "m", None, "stop"), None)  # type: ignore[arg-type]
    writer.close(60)
    assert found.wrong == "zinc-records ended: ValueError: a fault of ours"
    assert "in add" in trace()


def test_audits_that_end_by_an_error_make_the_server_unhealthy(bench: MakeBench) -> None:
    class NoRecords:
        kept: Callable[[str], None]
        store = None  # no record can be read: an `AttributeError`

    async def go() -> None:
        b, records = bench(), NoRecords()
        looks = Auditor(b.service, records, 1, quiet=0.001)  # type: ignore[arg-type]
        assert (await b.http.get("/health")).status_code == 200
        records.kept("a")
        await until(lambda: b.service.background.wrong)
        ill = await b.http.get("/health")
        assert ill.status_code == 503
        assert ill.json()["status"].startswith("zinc-audit ended: AttributeError")
        assert any("full_record" in line.get("trace", "") for line in b.log)
        await looks.close()

    asyncio.run(go())


def test_reports_that_cannot_be_taken_end_no_request_in_silence() -> None:
    """The task that reads from the engine ends: what runs and what comes fails at once, and the reason is told."""

    def broken(report: StepReport) -> None:
        raise ZeroDivisionError

    async def go() -> None:
        found, trace = logged()
        engine = ProcessClient(Start(FACTORY, {}), report=broken, background=found)
        await engine.start()
        async with asyncio.timeout(60):
            for name in ("first", "second"):
                last = (await read(engine.submit(RequestOutput(asked(name)))))[-1]
                assert isinstance(last, Failed)
                assert last.error == Fault.engine_lost
        assert "ZeroDivisionError" in str(engine.healthy)
        await until(lambda: found.wrong)
        assert "in broken" in trace()
        await engine.close()

    asyncio.run(go())
