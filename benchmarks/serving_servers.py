"""The two servers as whole processes: `zinc serve` and llama.cpp's `llama-server`, started alike and ended."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from zinc_rt.serving.api.keys import add_key

TENANTS = ("ops", "crowd", "single")
"""Tenants of our server: who measures, who floods, who is alone."""
QUEUE = 96
"""Requests that may wait in our server; the peer has no such limit."""
_TENANTS_FILE = f"""
[limits]
connections = 2048
queue = {QUEUE}

[tenants.ops]
admin = true
"""
_START_SECONDS, _END_SECONDS = 120.0, 20.0
_TICK = os.sysconf("SC_CLK_TCK")


class ServerFailed(RuntimeError):
    """A server did not start, or ended by itself."""


@dataclass(frozen=True)
class Sizes:
    """slots: requests computed at once; context: tokens of each."""

    slots: int
    context: int


@dataclass
class Server:
    """A server that runs inside of a `with` block.

    name: `ours` or `peer`. command: without the port. files: where its log goes. keys: by tenant, empty without.
    urgent: its processes go before those of others.
    """

    name: str
    command: list[str]
    files: Path
    keys: dict[str, str] = field(default_factory=dict)
    port: int = 0
    process: subprocess.Popen[bytes] | None = None
    start_seconds: float = 0.0
    urgent: bool = False

    def __enter__(self) -> Self:
        """Start it and wait until it answers. Raises `ServerFailed`."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        begin = time.perf_counter()
        with (self.files / f"{self.name}.log").open("ab") as log:
            command = [*self.command, "--port", str(self.port)]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            while not self._answers():
                if self.process.poll() is not None or time.perf_counter() - begin > _START_SECONDS:
                    raise ServerFailed(f"{self.name} did not start: {self._said()}")
                time.sleep(0.05)
        except BaseException:
            self._end()
            raise
        self.start_seconds = time.perf_counter() - begin
        if self.urgent:
            for pid in self._pids():
                make_urgent(pid)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def key(self, tenant: str = TENANTS[0]) -> str:
        """What a tenant's requests carry."""
        return self.keys.get(tenant, "")

    def cpu_seconds(self) -> float:
        """Processor time of all its processes, ended children included."""
        return sum(map(_cpu_seconds, self._pids()))

    def cpu_apart(self) -> tuple[float, float]:
        """The same of the process that was started, which speaks HTTP, and of all that it started."""
        first, *others = self._pids()
        return _cpu_seconds(first), sum(map(_cpu_seconds, others))

    def memory_mb(self) -> float:
        """Resident memory of all its processes, in MB (1e6 bytes)."""
        page = os.sysconf("SC_PAGE_SIZE")
        return sum(int(stat[21]) * page / 1e6 for stat in map(_stat, self._pids()) if stat)

    def alive(self) -> None:
        """Raise `ServerFailed` if it has ended."""
        if self.process is None or self.process.poll() is not None:
            raise ServerFailed(f"{self.name} ended by itself: {self._said()}")

    def _pids(self) -> list[int]:
        """The process and what it started, directly or not."""
        assert self.process is not None
        parents = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and (stat := _stat(int(entry.name))):
                parents[int(entry.name)] = int(stat[1])
        found = [self.process.pid]
        for pid in found:
            found += [child for child, parent in parents.items() if parent == pid]
        return found

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _said(self) -> str:
        lines = (self.files / f"{self.name}.log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no message"

    def _end(self) -> None:
        if self.process is None:
            return
        if self.process.poll() is None:
            for number in (signal.SIGTERM, signal.SIGTERM):  # the second one does not wait for requests
                self.process.send_signal(number)
                time.sleep(0.1)
            try:
                self.process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()


def make_urgent(pid: int) -> None:
    """Let a process's session go before those of others (sched(7), autogroups); needs the rights of root."""
    Path(f"/proc/{pid}/autogroup").write_text("-20")


def _cpu_seconds(pid: int) -> float:
    """Processor time of a process, its ended children included; 0 where it has ended."""
    return sum(int(x) for x in _stat(pid)[11:15]) / _TICK


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat behind the name, from the state on (proc(5)); empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def ours(model: Path, sizes: Sizes, threads: int, files: Path, flags: list[str]) -> Server:
    """`zinc serve` of the zinc_rt that this process would import."""
    keys, tenants = files / "keys.txt", files / "tenants.toml"
    keys.unlink(missing_ok=True)
    tenants.write_text(_TENANTS_FILE)
    made = {tenant: add_key(keys, tenant) for tenant in TENANTS}
    command = [sys.executable, "-m", "zinc_rt", "serve", "-m", str(model), "-t", str(threads)]
    command += ["-np", str(sizes.slots), "-c", str(sizes.context)]
    command += ["--api-key-file", str(keys), "--tenants", str(tenants), *flags]
    return Server("ours", command, files, made)


def peer(folder: Path, model: Path, sizes: Sizes, threads: int, files: Path, flags: list[str]) -> Server:
    """`llama-server`. Its context is that of all slots together; a stream takes one of its HTTP threads."""
    command = [str(folder / "llama-server"), "-m", str(model), "-t", str(threads), "-np", str(sizes.slots)]
    command += ["-c", str(sizes.slots * sizes.context), "--cache-ram", "0", "--threads-http", "128", "--no-ui", *flags]
    return Server("peer", command, files)
