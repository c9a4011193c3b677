"""Failed compiles are remembered, damage to the note is not believed, and processes share their work."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lang.modules import fatal, function, increment, slow
from zinc_rt.lang.building import Builder, ImageSource, seconds_compiled
from zinc_rt.lang.cache import CompileCache, cache_key
from zinc_rt.lang.compiler import Compiler, Module
from zinc_rt.lang.errors import CompileError
from zinc_rt.lang.image import Image
from zinc_rt.utils.notices import Waiting

ROOT = Path(__file__).parents[2]


def key(i: int) -> str:
    return cache_key([str(i)])


class Counted(Compiler):
    """A compiler that notes what it is given."""

    def __init__(self, cpu_seconds: int = 60, answer: Callable[[Module], CompileError] | None = None) -> None:
        super().__init__(jobs=1, cpu_seconds=cpu_seconds)
        self.names: list[str] = []
        self.answer = answer

    def compile_each(self, modules: list[Module], **more: Any) -> list[Image | CompileError]:
        self.names += [m.name for m in modules]
        if self.answer is not None:
            return [self.answer(m) for m in modules]
        return super().compile_each(modules, **more)


def build(path: Path, modules: list[Module], compiler: Compiler, said: list[str] | None = None) -> dict[str, Image]:
    """The modules' images through a cache that is opened anew, as another start does."""
    lines = said if said is not None else []
    builder = Builder(CompileCache(path, notify=lines.append), "avx2", compiler, lines.append)
    return builder.images({m.name: ImageSource(key(i), lambda m=m: m) for i, m in enumerate(modules)})


SYNTAX = Module("syntax", "define i32 @f( {\n ret i32 0 }", increment().target, ("f",))
SLOW = slow("slow")


@pytest.mark.parametrize(
    ("module", "cpu_seconds"),
    [
        (SYNTAX, 60),
        (fatal("fatal"), 60),
        pytest.param(SLOW, 1, marks=pytest.mark.slow),  # `test_orphans.py` shows that it is lasting
    ],
)
def test_a_failure_is_remembered(tmp_path: Path, module: Module, cpu_seconds: int) -> None:
    modules = [increment("good"), module]
    first, second, third = Counted(cpu_seconds), Counted(cpu_seconds), Counted(cpu_seconds)
    with pytest.raises(CompileError, match=f"cannot compile {module.name}: ") as caught:
        build(tmp_path, modules, first)
    with pytest.raises(CompileError) as again:
        build(tmp_path, modules, second)
    assert again.value.lasting
    assert str(again.value) == str(caught.value)
    assert (again.value.problem, again.value.module) == (caught.value.problem, module.name)
    assert first.names == ["good", module.name]
    assert second.names == []
    # What was compiled beside it is kept; clearing forgets the failure.
    store = CompileCache(tmp_path)
    assert isinstance(store.get(key(0)), Image)
    assert {e.key for e in store.entries()} == {key(0), key(1)}
    assert store.clear() == 2
    assert list(tmp_path.iterdir()) == []
    if module is not SLOW:
        with pytest.raises(CompileError):
            build(tmp_path, modules, third)
        assert third.names == ["good", module.name]


@pytest.mark.parametrize(
    "error",
    [
        CompileError("the compile process was killed, perhaps for lack of memory", "m"),
        CompileError("not done after 600 s; give it more time or make it smaller", "m"),
        CompileError("llvmlite cannot be used: no space left on device", "m"),
    ],
)
def test_what_may_go_better_next_time_is_tried_again(tmp_path: Path, error: CompileError) -> None:
    compiler = Counted(answer=lambda _: error)
    for _ in range(2):
        with pytest.raises(type(error)):
            build(tmp_path, [increment("m")], compiler)
    assert compiler.names == ["m", "m"]
    assert CompileCache(tmp_path).entries() == []
    assert set(build(tmp_path, [increment("m")], Counted())) == {"m"}


def damaged(data: bytes) -> list[bytes]:
    """The note cut at every length, and with every byte changed."""
    cut = [data[:n] for n in range(len(data))]
    return cut + [data[:i] + bytes([data[i] ^ 0x20]) + data[i + 1 :] for i in range(len(data))] + [data + b" "]


def test_a_damaged_note_is_ignored(tmp_path: Path) -> None:
    store = CompileCache(tmp_path)
    store.put_failure(key(0), CompileError("LLVM has had enough", "m", lasting=True))
    data = (tmp_path / key(0)).read_bytes()
    for bad in damaged(data):
        (tmp_path / key(0)).write_bytes(bad)
        assert store.get(key(0)) is None, bad
        assert not (tmp_path / key(0)).exists()
    (tmp_path / key(0)).write_bytes(damaged(data)[-1])
    compiler = Counted()
    code = build(tmp_path, [increment("m")], compiler)["m"].load()
    assert compiler.names == ["m"]
    assert function(code, "increment", ctypes.c_int, ctypes.c_int)(41) == 42


def test_an_image_takes_the_place_of_a_failure(tmp_path: Path) -> None:
    store = CompileCache(tmp_path)
    store.put_failure(key(0), CompileError("LLVM has had enough", "m", lasting=True))
    image = Image(b"\xc3", {"f": 0}, "avx2")
    store.put(key(0), image)
    assert store.get(key(0)) == image


def test_a_claim_keeps_others_out(tmp_path: Path) -> None:
    """Others in this process too; what is not claimed is free."""
    first, second = CompileCache(tmp_path), CompileCache(tmp_path)
    with first.claim([key(0), key(1)]) as mine:
        assert mine == {key(0), key(1)}
        with second.claim([key(1), key(2)]) as theirs:
            assert theirs == {key(2)}
    with second.claim([key(1), key(2)]) as theirs:
        assert theirs == {key(1), key(2)}


def test_without_a_folder_every_claim_is_granted(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (None, tmp_path / "file" / "cache"):
        with CompileCache(path).claim([key(0)]) as one, CompileCache(path).claim([key(0)]) as other:
            assert one == other == {key(0)}


def test_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zinc_rt.lang.building._TELL_AGAIN", 0.0)
    said: list[str] = []
    before = seconds_compiled()
    build(tmp_path, [increment(name) for name in "abc"], Counted(), said)
    assert said[0] == "compiling 3 kernels for avx2"
    assert said[1:] in (["compiled 1 of 3 kernels", "compiled 2 of 3 kernels"], ["compiled 2 of 3 kernels"])
    assert all(isinstance(line, Waiting) for line in said)
    waited = seconds_compiled()
    assert waited > before
    build(tmp_path, [increment("a")], Counted(), said)  # from the cache
    assert seconds_compiled() == waited


class Impatient(Counted):
    """A compiler that others are to wait for only shortly."""

    def compile_each(self, modules: list[Module], **more: Any) -> list[Image | CompileError]:
        self.timeout = 60
        return super().compile_each(modules, **more)


def test_who_takes_too_long_is_not_waited_for(tmp_path: Path) -> None:
    compiler, said = Impatient(), []
    compiler.timeout = 0.2
    with CompileCache(tmp_path).claim([key(0)]):
        assert set(build(tmp_path, [increment("m")], compiler, said)) == {"m"}
    assert compiler.names == ["m"]
    assert said == ["waiting for another process that compiles 1 kernel for avx2", "compiling 1 kernel for avx2"]


WORKER = """
import sys, time
from pathlib import Path
from typing import Any
from tests.lang.modules import slow
from tests.lang.test_building import build, Counted
compiler = Counted()
start = Path(sys.argv[2])
print("ready", flush=True)
while not start.exists():
    time.sleep(0.01)
images = build(Path(sys.argv[1]), [slow(str(i), bits=2560) for i in range(2)], compiler)
assert len(images) == 2
print(*compiler.names)
"""


def workers(tmp_path: Path, n: int) -> list[subprocess.Popen[str]]:
    """Processes that are ready to build the same two images."""
    command = [sys.executable, "-c", WORKER, str(tmp_path / "cache"), str(tmp_path / "start")]
    found = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(n)]
    for worker in found:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    return found


def test_processes_do_not_compile_the_same_twice(tmp_path: Path) -> None:
    found = workers(tmp_path, 2)
    (tmp_path / "start").touch()
    names = [name for worker in found for name in worker.communicate(timeout=60)[0].split()]
    assert [worker.returncode for worker in found] == [0] * 2
    assert sorted(names) == ["0", "1"]


HOLDER = """
import sys, time
from pathlib import Path
from typing import Any
from zinc_rt.lang.cache import CompileCache
with CompileCache(Path(sys.argv[1])).claim([sys.argv[2]]):
    print("claimed", flush=True)
    time.sleep(100)
"""


def test_a_process_that_dies_leaves_its_work_to_the_others(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path), key(0)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "claimed\n"
        compiler, said = Counted(), []
        timer = threading.Timer(0.3, holder.kill)
        timer.start()
        assert set(build(tmp_path, [increment("m")], compiler, said)) == {"m"}
        timer.join()
    assert compiler.names == ["m"]
    assert said == ["waiting for another process that compiles 1 kernel for avx2", "compiling 1 kernel for avx2"]
