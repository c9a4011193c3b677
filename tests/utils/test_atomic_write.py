"""Files that are whole or not there, whatever happens to the process that writes them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from zinc_rt.utils import atomic_write as module
from zinc_rt.utils.atomic_write import whole_file

KILLED = """
import os, sys, signal
from zinc_rt.utils import atomic_write as module
if sys.argv[2] == "named":
    module._nameless = lambda folder: None
with module.whole_file(sys.argv[1]) as out:
    out.write(b"x" * 1_000_000)
    out.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(params=["nameless", "named"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """With files that have no name until they are whole, and without."""
    if request.param == "named":
        monkeypatch.setattr(module, "_nameless", lambda folder: None)
    elif (probe := module._nameless(str(tmp_path))) is None:
        pytest.skip("this file system has no files without a name")
    else:
        probe.close()
    return str(request.param)


def killed(path: Path, kind: str) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), kind], check=False)
    assert done.returncode == -signal.SIGKILL


def test_a_file_appears_whole_and_replaces_an_older_one(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "f"
    for content in (b"one", b"two"):
        with whole_file(path) as out:
            out.write(content)
            assert not path.exists() or path.read_bytes() != content
        assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["f"]
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_failure_leaves_the_older_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")

    def stopped() -> None:
        with whole_file(path) as out:
            out.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert os.listdir(tmp_path) == ["f"]
    assert path.read_bytes() == b"old"


def test_a_killed_process_leaves_nothing_that_stays(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    killed(path, kind)
    assert (len(os.listdir(tmp_path)) == 1) is (kind == "nameless")
    assert path.read_bytes() == b"old"
    others = [tmp_path / "g.0123abcd.tmp", tmp_path / "f.tmp", tmp_path / "f.0123abcdef.tmp"]
    for other in others:
        other.touch()
    with whole_file(path) as out:
        out.write(b"new")
    assert {*tmp_path.iterdir()} == {path, *others}
    assert path.read_bytes() == b"new"


def test_what_another_process_writes_is_not_stale(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "f"
    with whole_file(path) as first:
        first.write(b"first")
        with whole_file(path) as second:
            second.write(b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["f"]


def test_a_name_that_cannot_be_is_told_before_anything_is_written(tmp_path: Path, kind: str) -> None:
    with pytest.raises(OSError, match="File name too long"), whole_file(tmp_path / ("n" * 250)):
        pytest.fail("it was opened")
    with pytest.raises(OSError, match="No such file"), whole_file(tmp_path / "none" / "f"):
        pytest.fail("it was opened")
