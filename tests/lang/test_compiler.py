"""Compile processes: errors that name their module, crashes that touch no other, nothing left running."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lang.modules import AVX2, INCREMENT, compiled, fatal, function, increment
from zinc_rt.lang import children
from zinc_rt.lang.compiler import Compiler, Module, _request
from zinc_rt.lang.errors import CompileError
from zinc_rt.lang.image import Image
from zinc_rt.lang.target import TARGETS, Target

GFX = TARGETS["gfx1201"]
HSA = Target("gfx1201", "amdgcn-amd-amdhsa", "gfx1201", (), frozenset())
GPU_KERNELS = """
define amdgpu_cs void @second(ptr addrspace(1) inreg %p, i32 inreg %k) #0 {
  store i32 %k, ptr addrspace(1) %p
  ret void
}
@shared = internal addrspace(3) global [256 x i32] poison
define amdgpu_cs void @first(ptr addrspace(1) inreg %p, i32 %lane) #0 {
  %q = getelementptr i32, ptr addrspace(3) @shared, i32 %lane
  store volatile i32 %lane, ptr addrspace(3) %q
  %v = load volatile i32, ptr addrspace(3) @shared
  store i32 %v, ptr addrspace(1) %p
  ret void
}
attributes #0 = { nounwind "amdgpu-flat-work-group-size"="32,32" }
"""


def test_images_come_in_the_order_of_the_modules() -> None:
    modules = [
        Module(f"m{i}", INCREMENT.replace("%x, 1", f"%x, {i}") + "; padding\n" * (7 * i % 5), AVX2, ("increment",))
        for i in range(9)
    ]
    for i, image in enumerate(Compiler(jobs=3).compile(modules)):
        code = image.load()
        assert function(code, "increment", ctypes.c_int, ctypes.c_int)(100) == 100 + i
    assert Compiler().compile([]) == []


def test_targets_may_be_mixed() -> None:
    targets = [t for t in TARGETS.values() if not t.gpu]
    images = Compiler().compile([increment(t.name, t) for t in targets])
    assert [i.target for i in images] == [t.name for t in targets]
    assert images[-1].code.rstrip(b"\0") == bytes.fromhex("00040011c0035fd6")  # add w0, w0, #1; ret


SPIRV = TARGETS["spirv"]


def test_modules_of_spirv_end_like_others() -> None:
    """Each is compiled in a copy of the compile process."""
    good = Module("good", "define spir_kernel void @k() {\n  ret void\n}", SPIRV, ("k",))
    syntax = Module("syntax", "define void @k( {", SPIRV, ("k",))
    ir = "declare i32 @llvm.amdgcn.workitem.id.x()\ndefine spir_kernel void @k(ptr addrspace(1) %p) {\n"
    ir += "  %x = call i32 @llvm.amdgcn.workitem.id.x()\n  store i32 %x, ptr addrspace(1) %p\n  ret void\n}"
    crash = Module("crash", ir, SPIRV, ("k",))
    first, refused, crashed, last = Compiler(jobs=1).compile_each([good, syntax, crash, good])
    assert isinstance(first, Image)
    assert first == last
    assert isinstance(refused, CompileError)
    assert str(refused).startswith("cannot compile syntax: LLVM refuses line 1 of its IR")
    assert isinstance(crashed, CompileError)
    assert "cannot compile crash: the compile process" in str(crashed)


FAILURES = {
    "syntax": (
        Module("syntax", "define i32 @f( {\n ret i32 0 }", AVX2, ("f",)),
        r"line 2 of its IR: expected type: ret i32 0 }",
    ),
    "verifier": (
        Module(
            "verifier",
            "define i32 @f(i1 %c) {\n  br i1 %c, label %a, label %b\na:\n  %x = add i32 1, 2\n  br label %b\nb:\n"
            "  ret i32 %x\n}",
            AVX2,
            ("f",),
        ),
        r"LLVM refuses it: Instruction does not dominate all uses! %x = add i32 1, 2 ret i32 %x",
    ),
    "cpu": (
        Module("cpu", INCREMENT, replace(AVX2, cpu="i8088"), ("increment",)),
        r"LLVM in llvmlite lacks target avx2: 'i8088' is not a recognized processor",
    ),
    "feature": (
        Module("feature", INCREMENT, replace(AVX2, features=("+warp",)), ("increment",)),
        r"LLVM in llvmlite lacks target avx2: '\+warp' is not a recognized feature",
    ),
    "gpu": (
        Module("gpu", GPU_KERNELS, replace(GFX, cpu="gfx9999"), ("first",)),
        r"LLVM in llvmlite lacks target gfx1201: 'gfx9999' is not a recognized processor",
    ),
    "triple": (
        Module("triple", INCREMENT, replace(AVX2, triple="pdp11-unknown"), ("increment",)),
        r"LLVM refuses it: No available targets are compatible with triple \"pdp11-unknown\"",
    ),
}
CRASHES = {
    "selection": (fatal("selection"), r"died of signal 6 \(SIGABRT\): LLVM ERROR: Do not know how to split"),
    "assembly": (
        Module("assembly", 'define void @f() {\n  call void asm sideeffect "nop", ""()\n  ret void\n}', AVX2, ("f",)),
        r"died of signal 6 \(SIGABRT\): LLVM ERROR: Inline asm not supported",
    ),
    "exit": (
        Module("exit", "define amdgpu_cs void @f() {\n  ret void\n}", HSA, ("f",)),
        r"ended with code 1: error: .*in function f .*unsupported non-compute shaders with HSA",
    ),
}


@pytest.mark.parametrize("jobs", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_failures_name_their_module_and_the_others_succeed(jobs: int) -> None:
    bad = [*FAILURES.values(), *CRASHES.values()]
    modules = [m for module, _ in bad for m in (increment(f"before {module.name}"), module)] + [increment("last")]
    results = Compiler(jobs=jobs).compile_each(modules)
    for i, (module, message) in enumerate(bad):
        result = results[2 * i + 1]
        assert isinstance(result, CompileError)
        assert result.lasting is not (module.name in ("cpu", "feature", "gpu"))
        with pytest.raises(CompileError, match=f"^cannot compile {module.name}: .*{message}"):
            raise result
    good = [r for r in results if isinstance(r, Image)]
    assert len(good) == len(bad) + 1
    assert {image.code for image in good} == {good[0].code}


def test_compile_raises_the_first_error() -> None:
    with pytest.raises(CompileError, match="cannot compile b:"):
        Compiler(jobs=1).compile([increment("a"), fatal("b"), FAILURES["syntax"][0]])


def test_a_bad_level_is_refused() -> None:
    with pytest.raises(CompileError, match="cannot compile m: optimisation level 4; it must be 0 to 3"):
        Module("m", INCREMENT, AVX2, ("increment",), opt=4)


def test_amd_objects_carry_registers_and_their_listing() -> None:
    image = compiled(GPU_KERNELS, "first", "second", target=GFX, disassemble=True)
    assert set(image.entries) == {"first", "second"}
    assert all(offset % 256 == 0 for offset in image.entries.values())
    config = image.meta["config"]
    assert {name: row["spilled_vgprs"] for name, row in config.items()} == {"first": 0, "second": 0}
    # RSRC2.LDS_SIZE, bits 15 to 23, counts 512 bytes.
    assert {name: row["COMPUTE_PGM_RSRC2"] >> 15 & 0x1FF for name, row in config.items()} == {"first": 2, "second": 0}
    # The listing has the words of every instruction: those of the second function are where its entry points.
    listing = image.meta["assembly"].split("second:")[1].split("first:")[0]
    words = [w for line in listing.splitlines() if ";" in line for w in line.split(";")[1].split()]
    expected = b"".join(int(word, 16).to_bytes(4, "little") for word in words)
    assert image.code[image.entries["second"] :][: len(expected)] == expected
    assert image.meta["sizes"]["second"] == len(expected)
    assert compiled(GPU_KERNELS, "first", "second", target=GFX).code == image.code


def test_disassembly_shows_the_code_that_is_emitted() -> None:
    image = compiled(INCREMENT, "increment", disassemble=True)
    assert "leal\t1(%rdi), %eax" in image.meta["assembly"]
    assert image.code == compiled(INCREMENT, "increment").code
    assert "assembly" not in compiled(INCREMENT, "increment").meta


def test_a_broken_llvmlite_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "llvmlite").mkdir()
    (tmp_path / "llvmlite" / "__init__.py").write_text("raise OSError('libllvmlite.so: wrong ELF class')")
    monkeypatch.syspath_prepend(str(tmp_path))
    words = r"m: llvmlite cannot be used: libllvmlite\.so: wrong ELF class; reinstall"
    with pytest.raises(CompileError, match=words) as caught:
        Compiler().compile([increment("m")])
    assert not caught.value.lasting


def test_the_runtime_itself_imports_no_compiler() -> None:
    code = (
        "import sys; from zinc_rt.lang import cache, compiler, image\n"
        "print({'llvmlite', 'subprocess', 'selectors', 'tempfile', 'importlib.metadata'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "set()"


# Stand-ins for the compile process. Each answers in the worker's frames, with no object unless told.
FRAMES = """
import json, os, signal, struct, sys, time
FRAME = struct.Struct("<IQ")
def read():
    head = sys.stdin.buffer.read(FRAME.size)
    if len(head) < FRAME.size:
        sys.exit(0)
    n, m = FRAME.unpack(head)
    return json.loads(sys.stdin.buffer.read(n)), sys.stdin.buffer.read(m)
def refuse(problem):
    text = json.dumps({"problem": problem, "notes": "", "seconds": 0.0}).encode()
    sys.stdout.buffer.write(FRAME.pack(len(text), 0) + text)
    sys.stdout.buffer.flush()
read()
"""

StandIn = Callable[[str], None]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    def use(script: str) -> None:
        monkeypatch.setattr(children, "worker_command", lambda: [sys.executable, "-I", "-S", "-c", FRAMES + script])

    return use


def test_a_module_that_takes_too_long_is_given_up_alone(stand_in: StandIn) -> None:
    stand_in("while True:\n    _, ir = read()\n    if ir == b'very slow':\n        time.sleep(60)\n    refuse('quick')")
    # The longest text goes first, so others follow in a process of the same file descriptors.
    modules = [Module(n, "very slow" if n == "slow" else "quick", AVX2, ()) for n in ("a", "slow", "b", "c")]
    started = time.monotonic()
    results = [str(r) for r in Compiler(jobs=1, timeout=0.5).compile_each(modules)]
    assert time.monotonic() - started < 10
    assert results[1].startswith("cannot compile slow: not done after 0.5 s")
    assert all("quick" in r for i, r in enumerate(results) if i != 1)


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed, perhaps for lack of memory"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", r"died of signal 11 \(SIGSEGV\)"),
        ("sys.exit('out of stack')", "ended with code 1: out of stack"),
        ("sys.exit('LLVM ERROR: out of memory')", "ended with code 1: LLVM ERROR: out of memory"),
        ("os.write(1, b'half an ans'); os._exit(3)", "ended with code 3"),
    ],
)
def test_how_a_process_ended(stand_in: StandIn, end: str, reason: str) -> None:
    stand_in(f"read()\n{end}")
    with pytest.raises(CompileError, match=f"cannot compile m: the compile process {reason}") as caught:
        Compiler().compile([increment("m")])
    assert not caught.value.lasting


def test_a_first_job_that_kills_is_not_tried_again(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in(f"read()\nopen({str(tmp_path / 'starts')!r}, 'a').write('.')\nos._exit(1)")
    with pytest.raises(CompileError, match="the compile process ended with code 1"):
        Compiler().compile([increment("m")])
    assert (tmp_path / "starts").read_text() == "."


def test_words_about_one_module_are_not_held_against_the_next(stand_in: StandIn) -> None:
    stand_in("read()\nos.write(2, b\"'x' is not a recognized processor\")\nrefuse('first')\nread()\ntime.sleep(60)")
    first, second = Compiler(jobs=1, timeout=0.5).compile_each(
        [Module("a", "longer", AVX2, ()), Module("b", "", AVX2, ())]
    )
    assert "first" in str(first)
    assert "not done after" in str(second)


def test_what_dies_of_its_predecessors_is_tried_in_a_fresh_process(stand_in: StandIn) -> None:
    stand_in("for i in range(3):\n    read()\n    refuse(f'job {i}')\nread()\nsys.exit('worn out')")
    results = Compiler(jobs=1).compile_each([increment(str(i)) for i in range(7)])
    assert [str(r).rsplit(": ", 1)[1] for r in results] == [f"job {i % 3}" for i in range(6, -1, -1)]


def test_requests_larger_than_a_pipe(stand_in: StandIn) -> None:
    stand_in("while True:\n    _, ir = read()\n    time.sleep(0.1)\n    refuse(f'{len(ir)} ' + 'x' * 300_000)")
    modules = [Module(str(n), "y" * n, AVX2, ()) for n in (1, 500_000, 3_000_000)]
    results = [str(r).split()[-2] for r in Compiler(jobs=2).compile_each(modules)]
    assert results == ["1", "500000", "3000000"]


def test_a_python_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(CompileError, match="/nonexistent/python cannot be started: No such file or directory"):
        Compiler().compile([increment()])
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(CompileError, match="does not know its Python interpreter"):
        Compiler().compile([increment()])


INTERRUPTED = """
import sys
from pathlib import Path
from tests.lang.modules import increment
from zinc_rt.lang import children
from zinc_rt.lang.compiler import Compiler
script = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"
children.worker_command = lambda: [sys.executable, "-I", "-S", "-c", script, sys.argv[1]]
try:
    Compiler(jobs=1).compile([increment()])
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_leaves_no_process_behind(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(pid_file)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        deadline = time.monotonic() + 30
        while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=10)[0] == "interrupted\n"
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


def frame(header: dict[str, object], payload: bytes = b"") -> bytes:
    """As the worker describes it."""
    text = json.dumps(header).encode()
    return struct.pack("<IQ", len(text), len(payload)) + text + payload


@pytest.mark.usefixtures("ctrl_c")
def test_the_worker_leaves_ctrl_c_to_its_parent_and_ends_with_its_input() -> None:
    request = frame({**_request(increment(), disassemble=False), "cpu_seconds": 60}, INCREMENT.encode())
    with subprocess.Popen(children.worker_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(frame({"path": sys.path}) + request)
        worker.stdin.flush()
        objects = []
        for _ in range(2):
            n_json, n_payload = struct.unpack("<IQ", worker.stdout.read(12))
            assert json.loads(worker.stdout.read(n_json))["problem"] is None
            objects.append(worker.stdout.read(n_payload))
            if len(objects) == 1:
                worker.send_signal(signal.SIGINT)
                time.sleep(0.05)
                worker.stdin.write(request)
                worker.stdin.flush()
        worker.stdin.close()
        assert worker.stdout.read() == b""
        assert worker.wait(timeout=10) == 0
    assert objects[0] == objects[1]
