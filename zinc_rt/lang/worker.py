"""The compile process: LLVM IR text in on standard input, objects out on standard output.

LLVM ends the process on an internal error, so it lives in one of its own, and llvmlite is imported nowhere else.
Run as a script, with the parent's process id as its argument: it imports nothing of this package. Frames both ways are
`FRAME` (bytes of JSON, bytes of payload), JSON, payload. The first frame brings {"path": sys.path}; each further one
{"triple", "cpu", "features", "options", "text", "alone", "exports", "opt", "disassemble", "cpu_seconds"} and the IR.
Answers, in order: {"problem", "refused", "line", "notes", "assembly", "seconds"} and the object; "refused" says that
LLVM's problem is with the IR.

The process ends with its parent, however that dies, and with SIGXCPU when a module takes more than "cpu_seconds".
"""

from __future__ import annotations

import json
import math
import os
import re
import resource
import select
import signal
import struct
import sys
import threading
import time
import warnings
from typing import Any, BinaryIO, Final

FRAME: Final = struct.Struct("<IQ")
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_PROCESSORS: Final = ("x86_64", "aarch64")
_ODD: Final = re.compile(r"(?<![\w%@.])i(?!(?:1|8|16|32|64)\b)(\d+)\b")
_ERROR_PLACE: Final = re.compile(r"<string>:(\d+):\d+: error: (.*)")


def main() -> int:
    """Answer requests until the input ends."""
    warnings.simplefilter("ignore", DeprecationWarning)  # of `os.fork`: the other thread waits, with no lock
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it ends this process
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    _end_with(int(sys.argv[1]))
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not mix with the answers
    _no_core_dumps()
    hello = _read(requests)
    if hello is None:
        return 0
    sys.path[:] = hello[0]["path"]
    llvm, problem = _import_llvm()
    while (frame := _read(requests)) is not None:
        request, ir = frame
        started, mark = time.perf_counter(), _stderr_end()
        answer: dict[str, Any] = {"problem": problem}
        code = b""
        if llvm is not None:
            _limit_cpu(request["cpu_seconds"])
            try:
                code, assembly = _compile(llvm, request, ir.decode())
                answer["assembly"] = assembly
            except RuntimeError as error:  # llvmlite's only kind
                answer.update(_explain(str(error)), refused=True)
        answer["notes"] = _stderr_since(mark)
        answer["seconds"] = time.perf_counter() - started
        header = json.dumps(answer).encode()
        answers.write(FRAME.pack(len(header), len(code)) + header + code)
        answers.flush()
    return 0


def _read(stream: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    """The next frame; None at the end."""
    head = stream.read(FRAME.size)
    if len(head) < FRAME.size:
        return None
    n_json, n_payload = FRAME.unpack(head)
    return json.loads(stream.read(n_json)), stream.read(n_payload)


def _import_llvm() -> tuple[Any, str | None]:
    """llvmlite's binding with all targets ready, or None and why not."""
    try:
        try:
            import llvmlite.binding as llvm
        except ModuleNotFoundError:
            import site

            site.main()  # it may be found by hooks in .pth files, which a start without `site` leaves out
            import llvmlite.binding as llvm
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    except Exception as error:
        return None, f"llvmlite cannot be used: {error}; reinstall it (pip install --force-reinstall llvmlite)"
    return llvm, None


def _compile(llvm: Any, request: dict[str, Any], ir: str) -> tuple[bytes, str | None]:
    """The module's object, or the text that stands for it, and its assembly text when asked for.

    Raises RuntimeError with LLVM's words.
    """
    emit = _apart if request["alone"] else _emitted
    text = emit(llvm, request, ir, True).decode() if request["disassemble"] else None  # emission changes the module
    return emit(llvm, request, ir, request["text"]), text


def _emitted(llvm: Any, request: dict[str, Any], ir: str, as_text: bool) -> bytes:
    for option in request["options"]:
        llvm.set_option("", option)
    machine = _machine(llvm, request)
    module = _optimised(llvm, machine, request, ir)
    if request["triple"].startswith("spirv") and (odd := _ODD.search(str(module))):
        raise RuntimeError(f"an optimisation made an integer of {odd[1]} bits, which LLVM 22 gets wrong in SPIR-V")
    made: bytes = machine.emit_assembly(module).encode() if as_text else machine.emit_object(module)
    return made


def _apart(llvm: Any, request: dict[str, Any], ir: str, as_text: bool) -> bytes:
    """`_emitted` in a copy of this process, which ends as that does: LLVM keeps something of a SPIR-V module for the
    next one, whose numbers then are defined twice, and options for all that follow.
    """
    read, write = os.pipe()
    worker = os.getpid()
    if (child := os.fork()) == 0:
        try:
            _die_with(worker)
            with os.fdopen(write, "wb") as out:
                try:
                    out.write(b"+" + _emitted(llvm, request, ir, as_text))
                except RuntimeError as error:
                    out.write(b"-" + str(error).encode())
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)
    os.close(write)
    with os.fdopen(read, "rb") as made:
        answer = made.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status < 0:
        os.kill(worker, -status)
    if status:
        os._exit(status)
    if answer[:1] == b"-":
        raise RuntimeError(answer[1:].decode())
    return answer[1:]


def _machine(llvm: Any, request: dict[str, Any]) -> Any:
    return llvm.Target.from_triple(request["triple"]).create_target_machine(
        cpu=request["cpu"],
        features=request["features"],
        opt=request["opt"],
        reloc="pic",
        codemodel="small",
    )


def _optimised(llvm: Any, machine: Any, request: dict[str, Any], ir: str) -> Any:
    if "target datalayout" not in ir:
        # It must be known while parsing (it says where allocas live); on the first line, line numbers stay right.
        ir = f'target datalayout = "{machine.target_data}" target triple = "{request["triple"]}" {ir}'
    module = llvm.parse_assembly(ir)
    module.verify()
    exports = set(request["exports"])
    for symbol in (*module.functions, *module.global_variables):
        # Not interposable: calls and constants can then be reached without a table that a loader would fill.
        if symbol.name in exports:
            symbol.visibility = "hidden"
        elif not symbol.is_declaration and not symbol.name.startswith("llvm."):
            symbol.linkage = "internal"
    tuning = llvm.create_pipeline_tuning_options(speed_level=request["opt"])
    tuning.loop_vectorization = False  # kernels are explicit vectors
    tuning.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, tuning)
    defined = [function for function in module.functions if not function.is_declaration]
    if request["opt"] and request["triple"].startswith(_PROCESSORS) and len(defined) == 1:
        # What the whole pipeline does beyond this, above all the unrolling of more loops, takes a third of the time and
        # makes processors' kernels no faster; those of GPUs need it.
        builder.getFunctionPassManager().run(defined[0], builder)
    else:
        builder.getModulePassManager().run(module, builder)
    return module


def _explain(text: str) -> dict[str, Any]:
    """LLVM's message on one line, and the line of the IR where it names one."""
    if place := _ERROR_PLACE.search(text):
        return {"problem": place[2], "line": int(place[1])}
    return {"problem": f"LLVM refuses it: {' '.join(text.split())}"}


def _stderr_end() -> int:
    """The position of standard error; the parent gives a file, so that what LLVM prints outlives a crash."""
    try:
        return os.lseek(2, 0, os.SEEK_END)
    except OSError:
        return 0


def _stderr_since(mark: int) -> str:
    try:
        return os.pread(2, 1 << 16, mark).decode(errors="replace")
    except OSError:
        return ""


def _end_with(parent: int) -> None:
    """End this process when its parent has ended, also in the midst of a compile, which reads no input."""
    _die_with(parent)
    threading.Thread(target=_end_with_the_input, daemon=True).start()


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the call
            os._exit(0)


def _end_with_the_input() -> None:
    hang_up = select.poll()
    hang_up.register(0, 0)  # hang-ups are reported unasked
    hang_up.poll()
    os._exit(0)


def _limit_cpu(seconds: int) -> None:
    """Have the system end this process with SIGXCPU after so many more seconds of processor time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = math.ceil(used.ru_utime + used.ru_stime) + seconds
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _no_core_dumps() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


if __name__ == "__main__":
    sys.exit(main())
