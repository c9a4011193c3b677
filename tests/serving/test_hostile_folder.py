"""No program that starts another runs Python files of the folder in which it was started."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from zinc_rt.lang.children import worker_command

MODULES = ("msgspec", "numpy", "jinja2", "llvmlite", "tokenizers", "uvicorn", "struct", "json", "zinc_rt")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files named like modules, each of which leaves a mark when it is run."""
    for name in MODULES:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r} + '\\n')\n")
    return tmp_path


@contextmanager
def started(folder: Path, *words: str) -> Iterator[str]:
    """The address of a server that is started in a folder, as an installed `zinc` is: without that folder's files."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "zinc_rt", *words, "--port", "0"], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http://[\d.:]+", process.stdout.readline())
        assert found is not None
        yield found[0]
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("routed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_servers_run_no_file_of_the_current_folder(folder: Path, routed: bool) -> None:
    """A server starts an engine and a process of templates; a router starts nothing."""
    body = {"messages": [{"role": "user", "content": "A fox"}], "max_tokens": 2}
    with ExitStack() as stack:
        url = stack.enter_context(started(folder, "serve", "-c", "128", "--kernels", "reference"))
        if routed:
            url = stack.enter_context(started(folder, "route", "-b", url))
        assert httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).status_code == 200
    assert not (folder / "ran").exists(), (folder / "ran").read_text()


def test_compile_processes_run_no_file_of_the_current_folder(folder: Path) -> None:
    subprocess.run(worker_command(), cwd=folder, input=b"", capture_output=True, timeout=60, check=False)
    assert not (folder / "ran").exists()
    done = subprocess.run([sys.executable, "-m", "json"], cwd=folder, input=b"", capture_output=True, check=False)
    assert done.returncode == 0
    assert (folder / "ran").exists()  # what starts without -P does run them
    assert os.environ.get("PYTHONSAFEPATH") is None
