"""What goes wrong around the native kernels: one clear line each, and what can go on goes on."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.backends.cpu.both import LEVELS, Net, Step, assert_same, expected, outputs
from tests.helpers import QWEN3, T, engine_for, random_tokens, run_tokens, write_model
from zinc_rt.backends import host_memory
from zinc_rt.backends.cpu.backend import CpuBackend
from zinc_rt.cli.main import main
from zinc_rt.engine.engine import Engine, EngineError, Options, SequenceChunk
from zinc_rt.errors import BackendError, ZincError
from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.op import Op
from zinc_rt.lang.cache import CompileCache
from zinc_rt.lang.compiler import Compiler, Module
from zinc_rt.lang.errors import CompileError, UnsupportedTarget
from zinc_rt.mem.errors import MemoryPlanError
from zinc_rt.models import define

N_CTX = 160
TOKENS = random_tokens(1, 40, QWEN3.n_vocab)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = QWEN3.__class__(**{**vars(QWEN3), "weights": T.Q8_0})
    return write_model(tmp_path_factory.mktemp("models") / "model.gguf", spec).path


@pytest.fixture(scope="module")
def want(path: Path) -> np.ndarray:
    with engine_for(path, n_ctx=N_CTX, kernels="reference") as engine:
        return run_tokens(engine, engine.open_sequence(), TOKENS, 40)


@contextmanager
def engine_saying(path: Path, lines: list[str], **options: object) -> Iterator[Engine]:
    with GGUFFile.open(path) as file, Engine(Options(n_ctx=N_CTX, **options), notify=lines.append) as engine:  # type: ignore[arg-type]
        engine.load(file, define(file))
        yield engine


def check(engine: Engine, want: np.ndarray, chunk: int = 7) -> None:
    slot = engine.open_sequence()
    got = run_tokens(engine, slot, TOKENS, chunk)
    assert_same(got.view(np.uint32), want.view(np.uint32), f"chunks of {chunk}")
    engine.close_sequence(slot)


# Threads, signals, processes.


def test_closing_while_a_step_runs(path: Path) -> None:
    """Another thread ends the engine: the step that runs ends first, the next is refused."""
    for wait in (0.0, 0.002, 0.01, 0.05):
        with engine_for(path, n_ctx=N_CTX, threads=3) as engine:
            slot, result = engine.open_sequence(), []

            def steps(engine: Engine = engine, slot: int = slot, result: list[object] = result) -> None:
                try:
                    while True:
                        run_tokens(engine, slot, TOKENS, 3)
                except (BackendError, EngineError) as error:
                    result.append(error)

            thread = threading.Thread(target=steps)
            thread.start()
            threading.Event().wait(wait)
            engine.close()
            thread.join(20)
            assert not thread.is_alive()
            assert len(result) == 1
            with pytest.raises((BackendError, EngineError)):
                engine.step([SequenceChunk(slot, 0, [1])])


def test_two_engines_at_once(path: Path, want: np.ndarray) -> None:
    failures: list[BaseException] = []

    def work(isa: str, threads: int) -> None:
        try:
            with engine_for(path, n_ctx=N_CTX, threads=threads, isa=isa) as engine:
                for chunk in (1, 7, 40):
                    check(engine, want, chunk)
        except BaseException as error:
            failures.append(error)

    both = [threading.Thread(target=work, args=(LEVELS[i % len(LEVELS)], 2)) for i in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert failures == []
    with engine_for(path, n_ctx=N_CTX, threads=2) as one, engine_for(path, n_ctx=N_CTX, threads=3) as other:
        for engine in (one, other, one):
            check(engine, want)


def run_forever(engine: Engine, slot: int, timer: threading.Timer) -> None:
    timer.start()
    while True:
        run_tokens(engine, slot, TOKENS, 5)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_during_a_step(path: Path, want: np.ndarray) -> None:
    """Wherever it comes, the sequence holds what it held before the step, or after it; either way it goes on."""
    with engine_for(path, n_ctx=N_CTX, threads=2) as engine:
        slot = engine.open_sequence()
        for delay in (0.001, 0.003, 0.01):
            timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                run_forever(engine, slot, timer)  # the signal may come before the timer's start returns
            timer.join()
            engine.cache.check_integrity()
        check_after = run_tokens(engine, slot, TOKENS, 9)
        assert_same(check_after.view(np.uint32), want.view(np.uint32), "after the interrupts")


def test_a_forked_process_goes_on_alone(path: Path, want: np.ndarray) -> None:
    """Its threads stayed behind, so the caller does all the work; ending it waits for nobody."""
    with engine_for(path, n_ctx=N_CTX, threads=3) as engine:
        check(engine, want)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                check(engine, want)
                engine.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        check(engine, want)


def test_an_engine_that_is_forgotten(path: Path, want: np.ndarray) -> None:
    """Nobody closed it: its threads end with it, also in a cycle of references."""
    before = threading.active_count()
    with GGUFFile.open(path) as file:
        engine = Engine(Options(n_ctx=N_CTX, threads=2))
        engine.load(file, define(file))
    check(engine, want, 40)
    cycle = [engine]
    cycle.append(cycle)  # type: ignore[arg-type]
    del engine, cycle
    gc.collect()
    assert threading.active_count() == before


def test_more_threads_than_cores(path: Path, want: np.ndarray) -> None:
    with engine_for(path, n_ctx=N_CTX, threads=16) as engine:
        for chunk in (1, 40):
            check(engine, want, chunk)


# Loading.


def test_a_second_model_is_refused_and_the_first_goes_on(path: Path, want: np.ndarray) -> None:
    with engine_for(path, n_ctx=N_CTX) as engine, GGUFFile.open(path) as file:
        with pytest.raises(EngineError, match="a model already"):
            engine.load(file, define(file))
        check(engine, want)


@pytest.mark.parametrize("after", [0, 1, 3])
def test_memory_that_the_system_refuses(
    after: int, path: Path, want: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line; with memory the same engine loads the model after all."""
    given, area = [0], host_memory.mmap.mmap

    def refusing(*arguments: object, **named: object) -> object:
        given[0] += arguments[0] == -1  # the model's file is mapped all the same
        if given[0] > after:
            raise OSError(12, "Cannot allocate memory")
        return area(*arguments, **named)  # type: ignore[call-overload]

    with GGUFFile.open(path) as file, Engine(Options(n_ctx=N_CTX, threads=2)) as engine:
        with monkeypatch.context() as patched:
            patched.setattr(host_memory.mmap, "mmap", refusing)
            with pytest.raises(MemoryPlanError, match=r"the system refused .* of memory: .*Cannot allocate") as caught:
                engine.load(file, define(file))
        assert "\n" not in str(caught.value)
        with pytest.raises(EngineError, match="no model"):
            engine.open_sequence()
        engine.load(file, define(file))
        check(engine, want)


def test_sizes_beyond_the_address_space() -> None:
    with pytest.raises(MemoryPlanError, match="the system refused"):
        host_memory.huge_bytes(1 << 70)


def test_an_unknown_level(path: Path) -> None:
    with pytest.raises(UnsupportedTarget, match=r"unknown instruction-set level 'mmx'; there are .*this machine runs"):
        Engine(Options(isa="mmx"))


# Compiling and its cache.


def refuse(self: Compiler, modules: list[Module], **_: object) -> list[CompileError]:
    return [CompileError("LLVM has had enough", m.name) for m in modules]


def test_kernels_that_do_not_compile(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Compiler, "compile_each", refuse)
    with (
        pytest.raises(CompileError, match=r"cannot compile \w+: LLVM has had enough") as caught,
        engine_saying(path, [], cache_dir=tmp_path / "new"),
    ):
        pass
    assert isinstance(caught.value, ZincError)
    assert "\n" not in str(caught.value)


@pytest.mark.slow  # makes all kernels of a model; the test above sees the error, which the command tells as any other
def test_a_command_whose_kernels_do_not_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Compiler, "compile_each", refuse)
    monkeypatch.setattr("sys.stdin", None)  # pytest's refuses to be read
    assert main(["run", "x", "-n", "1", "--cache-dir", str(tmp_path / "new")]) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert len(lines) == 1
    assert "LLVM has had enough" in lines[0]


@contextmanager
def backend_saying(lines: list[str], place: Path) -> Iterator[None]:
    """A backend with a cache of its own runs three small operations and gives the right answers."""
    rng = np.random.default_rng(1)
    net = Net(3)
    x = net.rows("x", 64)
    net.node(Op.RESIDUAL_ADD, [x, x], [net.out("twice", 64)])
    net.node(Op.MUL, [x, x], [net.out("squares", 64)])
    net.node(Op.ARGMAX, [x], [net.b.buffer("best", "output", "i32", ["n_rows"])])
    case = net.case([Step(3, {"x": rng.standard_normal((3, 64))})])
    with CpuBackend(threads=1, cache=CompileCache(place, notify=lines.append), notify=lines.append) as backend:
        yield
        for name, bits in outputs(backend, case)[0].items():
            assert_same(bits, expected(case)[0][name], name)


def said_of_the_cache(lines: list[str]) -> str:
    """The one line about it."""
    (line,) = (line for line in lines if line.startswith("compile cache"))
    return line


@pytest.mark.parametrize("kind", ["a file", "under a file", "of others"])
def test_a_cache_that_cannot_be_used(kind: str, tmp_path: Path) -> None:
    """Said once; the kernels are compiled all the same."""
    place, lines = tmp_path / "cache", list[str]()
    if kind == "of others":
        place.mkdir()
        place.chmod(0o777)
    else:
        place.write_text("in the way")
    with backend_saying(lines, place / "deeper" if kind == "under a file" else place):
        pass
    assert "going on without it" in said_of_the_cache(lines)


def test_a_cache_that_breaks_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("zinc_rt.lang.folder.Folder.write", full)
    lines: list[str] = []
    with backend_saying(lines, tmp_path / "cache"):
        pass
    assert "No space left on device; going on without storing" in said_of_the_cache(lines)


def test_damaged_kernels_are_compiled_again(tmp_path: Path) -> None:
    place, lines = tmp_path / "cache", list[str]()
    with backend_saying(lines, place):
        pass
    assert lines[0].startswith("compiling")
    kept = sorted(entry for entry in place.iterdir() if entry.name != "claims")
    assert len(kept) == 4
    for i, file in enumerate(kept):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 0x10
        file.write_bytes((data, data[: len(data) // 2], b"")[i % 3])
    lines.clear()
    with backend_saying(lines, place):
        pass
    assert "compiled again" in said_of_the_cache(lines)
    lines.clear()
    with backend_saying(lines, place):
        pass
    assert lines == []


@pytest.mark.slow  # compiles all kernels of the model; `tests/cli/test_native.py` tries it with few
def test_a_model_runs_without_a_cache(path: Path, want: np.ndarray, tmp_path: Path) -> None:
    lines: list[str] = []
    (tmp_path / "file").touch()
    with engine_saying(path, lines, cache_dir=tmp_path / "file") as engine:
        check(engine, want)
    assert "going on without it" in said_of_the_cache(lines)
