"""What tells files apart: a stamp that costs nothing, and a hash of the contents that is computed once."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from tests.gguf import build
from zinc_rt.gguf import GGUFFile
from zinc_rt.gguf.errors import FileChanged

HOUR_AGO = 1_700_000_000_000_000_000


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.gguf"
    path.write_bytes(build.small())
    os.utime(path, ns=(HOUR_AGO, HOUR_AGO))
    return path


def identity(path: Path) -> bytes:
    with GGUFFile.open(path) as file:
        return file.identity


def test_an_identity_is_of_one_file_as_of_its_last_write(small: Path, tmp_path: Path) -> None:
    first = identity(small)
    assert len(first) == 16
    assert identity(small) == first
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(small.read_bytes())
    os.utime(copy, ns=(HOUR_AGO, HOUR_AGO))
    assert identity(copy) != first
    os.utime(small, ns=(HOUR_AGO, HOUR_AGO + 1))
    assert identity(small) != first


def test_the_hash_of_the_contents(small: Path, tmp_path: Path) -> None:
    """As `sha256sum` gives it; computed once, and again when the file was written to."""
    folder = tmp_path / "cache"
    want = hashlib.sha256(small.read_bytes()).hexdigest()
    with GGUFFile.open(small) as file:
        assert file.sha256() == want
        assert not folder.exists()
        assert file.sha256(folder) == want
    (kept,) = folder.iterdir()
    assert kept.read_text() == want
    kept.write_text("0" * 64)
    with GGUFFile.open(small) as file:
        assert file.sha256(folder) == "0" * 64  # from there
    for damaged in ("", "0" * 63, "0" * 63 + "g", "0" * 65):
        kept.write_text(damaged)
        with GGUFFile.open(small) as file:
            assert file.sha256(folder) == want
    other = small.read_bytes()[:-1] + b"\x5a"
    small.write_bytes(other)
    with GGUFFile.open(small) as file:
        assert file.sha256(folder) == hashlib.sha256(other).hexdigest() != want
    assert list(folder.iterdir()) == [kept]  # a file that has just been written may be written to again


def test_a_hash_without_a_folder(small: Path, tmp_path: Path) -> None:
    """A folder that others can write to is not trusted, and one that is a file cannot be one."""
    want = hashlib.sha256(small.read_bytes()).hexdigest()
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    for folder in (shared, small):
        with GGUFFile.open(small) as file:
            assert file.sha256(folder) == want
    assert not list(shared.iterdir())
    with GGUFFile.open(small) as file:
        small.write_bytes(b"")
        with pytest.raises(FileChanged):
            file.sha256()
