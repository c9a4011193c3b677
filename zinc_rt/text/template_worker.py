"""The process that renders chat templates: conversations in on standard input, texts out on standard output.

Run as a script, by `template_process`. Frames both ways are `FRAME` (bytes of JSON, bytes of text), JSON, text in
UTF-8 (lone surrogates included). The first frame brings {"path": sys.path, "address_space": bytes, "cpu_seconds",
"max_characters"}; each further one {variable: value} and the template's source. Answers, in order: {} and the rendered
text, or {"problem", "line"}, or {"over": "memory", "line"}. The first one is empty and says that the process is ready.

It gives up what it does not need once everything is imported: it can open no file, write none, dump no core, start no
process and gain no privilege, and Linux refuses it all calls but those of `template_filter`. The environment of its
parent is not passed on to it. At the end of its input, also by its parent's death, it ends:
when it waits for a request at once, and while it renders by SIGIO.
"""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import json
import math
import os
import resource
import signal
import struct
import sys
import time
from types import ModuleType
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
        sandbox = _import_all()
    except ImportError as error:
        _write(answers, {"problem": str(error)})
        return 1
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())  # whom SIGIO is for
    _give_up(limits["address_space"])
    _write(answers, {})
    try:
        while (frame := read_frame(requests)) is not None:
            variables, source = frame
            _renew_cpu(limits["cpu_seconds"])
            _end_with_input(True)
            answer = _answer(sandbox, source, variables, limits["max_characters"])
            _end_with_input(False)
            _write(answers, *answer)
    except MemoryError:  # a conversation that is too large
        _write(answers, {"over": "memory"})
        return 1
    return 0


def read_frame(stream: BinaryIO) -> tuple[dict[str, Any], str] | None:
    """The next frame; None at the end."""
    head = stream.read(FRAME.size)
    if len(head) < FRAME.size:
        return None
    n_json, n_text = FRAME.unpack(head)
    header, text = stream.read(n_json), stream.read(n_text)
    if len(header) < n_json or len(text) < n_text:
        return None
    return json.loads(header.decode(*UTF8)), text.decode(*UTF8)


def pack_frame(header: dict[str, Any], text: str = "") -> list[bytes]:
    """The parts of a frame. Raises what `json.dumps` raises."""
    parts = [json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode(*UTF8), text.encode(*UTF8)]
    return [FRAME.pack(*map(len, parts)), *parts]


def _answer(sandbox: ModuleType, source: str, variables: dict[str, Any], limit: int) -> tuple[dict[str, Any], str]:
    try:
        return {}, sandbox.render(source, variables, limit)
    except MemoryError as error:
        return {"over": "memory", "line": sandbox.line_of(error.__traceback__)}, ""
    except Exception as error:  # a template can raise anything: it is a program
        problem, line = sandbox.describe(error)
        return {"problem": problem, "line": line}, ""


def _own_signals() -> None:
    """Ctrl-C is for the parent. What ends this process does so even if the parent ignores or blocks it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGXCPU, signal.SIGIO, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _end_with_input(on: bool) -> None:
    """Let SIGIO end the process when something comes in, which can only be the end: no request follows unanswered."""
    fcntl.fcntl(0, fcntl.F_SETFL, os.O_ASYNC if on else 0)


def _write(stream: BinaryIO, header: dict[str, Any], text: str = "") -> None:
    for part in pack_frame(header, text):
        stream.write(part)
    stream.flush()


def _import_all() -> ModuleType:
    """The sandbox, with everything loaded that Python and Jinja2 load when they first need it: later no file opens."""
    import html
    import pprint
    import textwrap

    import jinja2.debug

    from zinc_rt.text import sandbox

    for codec in ("ascii", "latin-1", "unicode_escape"):
        codecs.lookup(codec)
    time.localtime()  # the time zone
    with contextlib.suppress(jinja2.UndefinedError):
        sandbox.render("{% for a in b %}{{ '\\n' ~ a | tojson | trim }}{% endfor %}{{ b.c.d }}", {"b": [1]}, 100)
    del html, pprint, textwrap
    return sandbox


def _give_up(address_space: int) -> None:
    try:
        from zinc_rt.text.template_filter import give_up_calls
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
