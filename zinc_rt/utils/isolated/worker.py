"""A process that works for another one: requests in on standard input, answers out on standard output.

Run as a script, by `child`. Frames both ways are `FRAME` (bytes of JSON, further bytes), JSON, the bytes. The first
frame brings {"path": sys.path, "module": name, "settings", "address_space": bytes, "cpu_seconds"}. The module's
`load(settings)` imports all that it will need, and gives the function of a request: from JSON and bytes to JSON and
bytes. Where memory is short, it may raise MemoryError. Answers are in the order of requests; {"problem"} says that the
work could not be done, {"over": "memory"} that there was not enough of it. The first one is empty and says that the
process is ready.

It gives up what it does not need once everything is imported: it can open no file, write none, dump no core, start no
process and gain no privilege, and Linux refuses it all calls but those of `system_calls`. The environment of its
parent is not passed on to it. At the end of its input, also by its parent's death, it ends:
when it waits for a request at once, and while it works by SIGIO.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import math
import os
import resource
import signal
import struct
import sys
from typing import Any, BinaryIO, Final

FRAME: Final = struct.Struct("<QQ")
UTF8: Final = ("utf-8", "surrogatepass")


def main() -> int:
    """Answer requests until the input ends."""
    _own_signals()
    requests, answers = os.fdopen(0, "rb"), os.fdopen(1, "wb")
    hello = read_frame(requests)
    if hello is None:
        return 0
    limits = hello[0]
    sys.path[:] = limits["path"]
    try:
        answer_to = importlib.import_module(limits["module"]).load(limits["settings"])
    except ImportError as error:
        _write(answers, {"problem": str(error)})
        return 1
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())  # whom SIGIO is for
    _give_up(limits["address_space"])
    _write(answers, {})
    try:
        while (frame := read_frame(requests)) is not None:
            _renew_cpu(limits["cpu_seconds"])
            _end_with_input(True)
            answer = answer_to(*frame)
            _end_with_input(False)
            _write(answers, *answer)
    except MemoryError:
        _write(answers, {"over": "memory"})
        return 1
    return 0


def read_frame(stream: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    """The next frame; None at the end."""
    head = stream.read(FRAME.size)
    if len(head) < FRAME.size:
        return None
    n_json, n_bytes = FRAME.unpack(head)
    header, payload = stream.read(n_json), stream.read(n_bytes)
    if len(header) < n_json or len(payload) < n_bytes:
        return None
    return json.loads(header.decode(*UTF8)), payload


def pack_frame(header: dict[str, Any], payload: bytes = b"") -> list[bytes]:
    """The parts of a frame. Raises what `json.dumps` raises."""
    parts = [json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode(*UTF8), payload]
    return [FRAME.pack(*map(len, parts)), *parts]


def _own_signals() -> None:
    """Ctrl-C is for the parent. What ends this process does so even if the parent ignores or blocks it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGXCPU, signal.SIGIO, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _end_with_input(on: bool) -> None:
    """Let SIGIO end the process when something comes in, which can only be the end: no request follows unanswered."""
    fcntl.fcntl(0, fcntl.F_SETFL, os.O_ASYNC if on else 0)


def _write(stream: BinaryIO, header: dict[str, Any], payload: bytes = b"") -> None:
    for part in pack_frame(header, payload):
        stream.write(part)
    stream.flush()


def _give_up(address_space: int) -> None:
    try:
        from zinc_rt.utils.isolated.system_calls import give_up_calls
    except ImportError:  # a Python without ctypes: the limits are left

        def give_up_calls() -> bool:
            return False

    _limit(resource.RLIMIT_AS, address_space)
    for right in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC):
        _limit(right, 0)
    give_up_calls()


def _limit(which: int, value: int) -> None:
    """Lower a limit for good. One that is lower already stays."""
    hard = resource.getrlimit(which)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))


def _renew_cpu(seconds: int) -> None:
    """So much processor time from now, to the next whole second; then SIGXCPU ends the process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft, hard = math.ceil(used.ru_utime + used.ru_stime) + seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):  # the parent went away
        os._exit(main())
