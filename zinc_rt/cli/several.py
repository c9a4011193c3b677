"""One server on each of several devices, and the router before them: `zinc serve --device cuda:0,cuda:1`."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from zinc_rt.backends.devices import Device, UnknownDevice, parse_device
from zinc_rt.errors import UsageError, ZincError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zinc_rt.serving.api.config import ServerConfig

_OWN = frozenset({"device", "host", "port", "ssl_certfile", "ssl_keyfile"})
"""Parameters that say nothing to the servers behind the router."""
_SECONDS = 40.0
"""That a server gets for its end before it is killed: a little more than its requests get."""


def devices_of(text: str | None) -> list[str]:
    """The devices of a list; none where one is named, or none. Raises `UsageError`."""
    if text is None or "," not in text or text == Device.gpu_kernel:
        return []
    names = [name.strip() for name in text.split(",")]
    for name in names:
        try:
            parse_device(name)
        except UnknownDevice as error:
            raise UsageError(f"--device {text}: {error}") from None
    return names


def serve_each(devices: Sequence[str], context: Any, config: ServerConfig, started: Callable[[str], None]) -> int:
    """Start a server on each device and route until a signal ends it; the exit code.

    context: the click context of `zinc serve`. started: gets the router's address. Raises `UsageError`, `ZincError`
    where a server does not start; it has said why.
    """
    from zinc_rt.serving.route.server import start_router

    if context.params.get("records") is not None:
        raise UsageError("--records is the folder of one server; leave it out with several devices")
    words = given(context)
    with ExitStack() as stack:
        processes = [stack.enter_context(_server(device, words)) for device in devices]
        urls = [_address(process, device) for process, device in zip(processes, devices, strict=True)]
        return start_router(urls, config, started)


def given(context: Any) -> list[str]:
    """The words of a command line that say what this one does, but for `_OWN`. What the environment says, children hear
    from it.
    """
    words: list[str] = []
    for param in context.command.params:
        value = context.params.get(param.name)
        if param.name in _OWN or getattr(context.get_parameter_source(param.name), "name", "") != "COMMANDLINE":
            continue
        if param.param_type_name == "argument":
            words.append(str(value))
        elif getattr(param, "is_flag", False):
            words.append((param.opts if value else param.secondary_opts)[0])
        else:
            values = value if isinstance(value, list | tuple) else [value]
            words += [word for one in values for word in (param.opts[0], str(one))]
    return words


@contextmanager
def _server(device: str, words: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    command = [
        sys.executable,
        "-m",
        "zinc_rt",
        "serve",
        *words,
        "--device",
        device,
        "--host",
        "127.0.0.1",
        "--port",
        "0",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[str], device: str) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"https?://\S+?(?=/v1 )", line)
    if found is None:
        code = process.wait()
        raise ZincError(f"the server on {device} did not start: it ended with code {code}")
    return found[0]
