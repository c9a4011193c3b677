"""`zinc serve` and `zinc route` as processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.serving.real import SECONDS, Ask


class Command:
    """One of them, once it answers. n_files: that it may have open."""

    def __init__(
        self, folder: Path, *options: str, verb: str = "serve", port: str = "0", n_files: int | None = None
    ) -> None:
        self.folder = folder
        self._log = folder / f"log-{time.monotonic_ns()}"
        limit = [] if n_files is None else ["prlimit", f"--nofile={n_files}:{n_files}"]
        device = ["--device", "cpu"] if verb == "serve" else []
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*limit, sys.executable, "-m", "zinc_rt", verb, "--port", port, *device, *options],
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        found = re.search(r"http://[\d.:]+\d", line)
        assert found is not None, self.log
        self.url = found[0]

    @property
    def v1(self) -> str:
        """The base that OpenAI's clients take."""
        return f"{self.url}/v1"

    @property
    def log(self) -> str:
        """What it wrote to standard error."""
        return self._log.read_text()

    def engine(self) -> int:
        """The id of its engine's process."""
        (engine,) = self.engines()
        return engine

    def engines(self) -> list[int]:
        """The ids of the processes of all its engines."""
        return [child for child in self.children() if "engine_process" in _command(child)]

    def children(self) -> list[int]:
        """The ids of all its processes: the engine's, and the one that renders templates."""
        return [
            int(child)
            for child in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        ]

    def ask(self, ask: Ask, **headers: str) -> httpx.Response:
        """The answer to a request."""
        return httpx.post(self.url + ask.path, content=ask.json, headers=headers, timeout=SECONDS)

    def wait(self) -> int:
        """The exit code."""
        return self.process.wait(SECONDS)

    def end(self) -> None:
        """Leave nothing behind, whatever the test found."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def started(folder: Path, *options: str | Path) -> Iterator[Command]:
    """Run `zinc serve` on a free port, and end it as a service manager does."""
    server = Command(folder, *map(str, options))
    try:
        yield server
        assert server.process.poll() is None, server.log
        server.process.terminate()
        assert server.wait() == 0
    finally:
        server.end()


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def gone(pid: int) -> bool:
    """Whether a process is over, waited for or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
