"""`zinc serve` and `zinc keys`: what they refuse, in one line, and a server as a process from start to end."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Outcome
from zinc_rt.cli.options import size_bytes
from zinc_rt.errors import UsageError
from zinc_rt.llm.load import built_in_model
from zinc_rt.serving.api.config import ServerConfig
from zinc_rt.serving.api.model_table import table_of
from zinc_rt.serving.api.start import EngineChoice, make_service

Zinc = Callable[..., Outcome]


def test_a_key_is_printed_once_and_kept_as_a_digest(zinc: Zinc, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    done = zinc("keys", "new", "acme", "--file", file)
    assert done.code == 0
    assert re.fullmatch(r"zk_acme_[0-9A-Za-z]{32}\n", done.out)
    assert re.fullmatch(r"acme [0-9a-f]{64}\n", file.read_text())
    assert zinc("keys", "old", "acme", "--file", file).code == 2
    assert "tenant 'A B'" in zinc("keys", "new", "A B", "--file", file).error
    assert zinc("keys", "new", "acme", "--file", tmp_path / "no" / "keys").code == 2


def test_what_cannot_be_served_is_refused_in_a_line(zinc: Zinc, tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("[tenants.a]\nweight = -1\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for code, said, args in (
            (1, "Address already in use", ("--port", port)),
            (2, "lets other machines in", ("--host", "0.0.0.0", "--port", 0)),
            (2, "tenants.a.weight is -1", ("--tenants", bad, "--port", 0)),
            (2, "No such file", ("--tenants", tmp_path / "none", "--port", 0)),
            (2, "No such file", ("--api-key-file", tmp_path / "none", "--port", 0)),
            (1, "none.gguf", ("-m", tmp_path / "none.gguf", "--port", 0)),
            (2, "--kv-memory is '0'", ("--kv-memory", "0", "--port", 0)),
            (2, "--state-memory is '0'", ("--state-memory", "0", "--port", 0)),
            (2, "--alias", ("--alias", "a,,b", "--port", 0)),
            (2, "--port", ("--port", 70000)),
            (2, "--mmproj is for texts", ("--embeddings", "--mmproj", bad, "--port", 0)),
            (2, "--media-hosts has 'http://a'", ("--media-hosts", "http://a", "--port", 0)),
            (2, "which is no folder", ("--media-path", bad, "--port", 0)),
            (2, "--otlp-endpoint is 'a:4318'", ("--otlp-endpoint", "a:4318", "--port", 0)),
            (1, "none.gguf", ("--mmproj", tmp_path / "none.gguf", "--port", 0)),
            (
                2,
                "--mmproj is given 2 times; where there is one model it is given once",
                ("--mmproj", "a", "--mmproj", "b", "--port", 0),
            ),
            (2, "--idle-unload is 'soon'", ("--idle-unload", "soon", "--port", 0)),
            (2, "n_ctx", ("-c", 0, "--port", 0, "--one-process")),
        ):
            done = zinc("serve", *args)
            assert (done.code, said in done.error) == (code, True), done.err


def test_sizes_of_memory() -> None:
    sizes = [size_bytes("--kv-memory", text) for text in ("4G", "512M", "1k", "3GiB", "1.5G", "77")]
    assert sizes == [4 << 30, 512 << 20, 1024, 3 << 30, 3 << 29, 77]
    for text in ("", "G", "-1G", "4GG", "0", "0.0G"):
        with pytest.raises(UsageError, match="--kv-memory"):
            size_bytes("--kv-memory", text)


def test_agents_are_told_a_name_that_the_server_has(
    zinc: Zinc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(config: ServerConfig, choice: EngineChoice, told: Callable[[str], None], several: Any = None) -> int:
        told("http://here")
        if several is not None:
            table = table_of(several.service(config, choice))
            assert table is not None
            names.update(table.models[0].fitted.names)
            return 0
        service = make_service(config, choice)
        names.update(service.model.names)
        service.model.close()
        return 0

    names: set[str] = set()
    monkeypatch.setattr("zinc_rt.serving.api.start.start_server", started)
    part = tmp_path / "a-00001-of-00001.gguf"
    shutil.copy(built_in_model(), part)
    (tmp_path / "imatrix-a.gguf").touch()
    for words in ((), ("-m", part), ("-m", tmp_path, "--idle-unload", "9s"), ("--alias", "one,two")):
        names.clear()
        done = zinc("serve", "--agent", *words)
        assert done.code == 0, done.err
        found = re.findall(r"ANTHROPIC_MODEL=(\S+)", done.out)
        assert set(found) <= names
        assert len(found) == 1


def ask(url: str) -> bytes:
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 12, "seed": 1, "stream": True}
    request = urllib.request.Request(url + "/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as answer:
        text: bytes = answer.read()
    return re.sub(rb'(?m)^id: .*|"(id|created)":[^,]*', b"", text)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize(
    ("number", "code"), [pytest.param(signal.SIGTERM, 0, marks=pytest.mark.slow), (signal.SIGINT, 130)]
)
def test_a_server_from_start_to_end(number: signal.Signals, code: int) -> None:
    """`serving/test_faults.py` has one that SIGTERM ends, and its engine in a process of its own."""
    command = [sys.executable, "-m", "zinc_rt", "serve", "--port", "0", "-np", "2", "-c", "128"]
    command += ["--one-process"] if number is signal.SIGINT else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ}) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        try:
            found = re.fullmatch(rb"zinc: (http://127\.0\.0\.1:\d+/v1) answers now; .*\n", server.stdout.readline())
            assert found, server.stderr.read()
            first = ask(found[1].decode())
            assert first.endswith(b"data: [DONE]\n\n")
            assert ask(found[1].decode()) == first
            server.send_signal(number)
            _, log = server.communicate(timeout=60)
            assert server.returncode == code, log
        finally:
            server.kill()
    lines = [json.loads(line) for line in log.splitlines()]
    assert [line["outcome"] for line in lines if line["event"] == "request"] == ["ok", "ok"]
    assert "draining" in [line["event"] for line in lines]
