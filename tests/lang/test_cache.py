"""The cache on disk: what comes back, what damage and hostile folders do, many writers, `zinc cache`."""

from __future__ import annotations

import errno
import json
import os
import pwd
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zinc_rt.cli.main import main
from zinc_rt.lang import cache as module
from zinc_rt.lang import folder as folder_module
from zinc_rt.lang.cache import CompileCache, cache_key, default_cache_dir, llvm_version
from zinc_rt.lang.errors import CacheError, CompileError
from zinc_rt.lang.image import Image

ROOT = Path(__file__).parents[2]


def image(n_bytes: int = 64, fill: bytes = b"\xc3") -> Image:
    return Image(fill * n_bytes, {"f": 0}, "avx2", {"sizes": {"f": 1}})


def key(i: int) -> str:
    return cache_key([str(i)])


@pytest.fixture
def notices() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path, notices: list[str]) -> CompileCache:
    return CompileCache(tmp_path / "deep" / "cache", notify=notices.append)


def used(folder: Path, name: str, seconds_ago: float) -> None:
    """Set the time of last use."""
    moment = time.time() - seconds_ago
    os.utime(folder / name, (moment, moment))


def test_what_is_put_comes_back(store: CompileCache, notices: list[str]) -> None:
    assert store.get(key(1)) is None
    store.put(key(1), image())
    assert store.get(key(1)) == image()
    assert store.get(key(2)) is None
    assert CompileCache(store.path).get(key(1)) == image()
    assert (store.stats.hits, store.stats.misses, store.stats.stored, notices) == (1, 2, 1, [])


def test_a_folder_is_made_for_the_user_alone(store: CompileCache) -> None:
    assert store.path is not None
    store.get(key(1))
    assert not store.path.exists()
    previous = os.umask(0)
    try:
        store.put(key(1), image())
    finally:
        os.umask(previous)
    assert store.path.stat().st_mode & 0o777 == 0o700
    assert [(p.name, p.stat().st_mode & 0o777) for p in store.path.iterdir()] == [(key(1), 0o600)]


def test_without_a_folder_nothing_is_kept() -> None:
    store = CompileCache(None)
    store.put(key(1), image())
    assert store.get(key(1)) is None
    assert store.entries() == []
    assert store.clear() == 0


@given(st.lists(st.text() | st.binary()), st.lists(st.text() | st.binary()))
def test_keys_differ_when_parts_do(first: list[str | bytes], second: list[str | bytes]) -> None:
    assert re.fullmatch("[0-9a-f]{64}", cache_key(first))
    assert (cache_key(first) == cache_key(second)) is (first == second)


def test_keys_depend_on_the_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    assert llvm_version() == version("llvmlite")
    before = key(1)
    monkeypatch.setattr(module, "llvm_version", lambda: "0.51.0")
    assert key(1) != before


@pytest.mark.parametrize("name", ["", "x", "../../etc/passwd", "A" * 64, "0" * 63])
def test_only_keys_name_objects(store: CompileCache, name: str) -> None:
    store.put(key(1), image())
    with pytest.raises(ValueError, match="64 hex digits"):
        store.get(name)
    with pytest.raises(ValueError, match="64 hex digits"):
        store.put(name, image())


@pytest.mark.parametrize("damage", ["truncated", "changed", "empty"])
def test_damaged_objects_are_removed_and_missed(store: CompileCache, notices: list[str], damage: str) -> None:
    assert store.path is not None
    for i in (1, 2):
        store.put(key(i), image())
        data = (store.path / key(i)).read_bytes()
        spoilt = {"truncated": data[:-1], "changed": data[:-1] + b"\0", "empty": b""}[damage]
        (store.path / key(i)).write_bytes(spoilt)
        assert store.get(key(i)) is None
        assert not (store.path / key(i)).exists()
    assert (store.stats.damaged, store.stats.misses) == (2, 2)
    assert len(notices) == 1
    assert f"removed the object {key(1)[:12]}" in notices[0]
    store.put(key(1), image())
    assert store.get(key(1)) == image()


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    size = len(image(1000).to_bytes())
    store = CompileCache(tmp_path / "c", max_bytes=10 * size)
    for i in range(10):
        store.put(key(i), image(1000))
        used(tmp_path / "c", key(i), 100_000 - i)
    assert store.get(key(0)) == image(1000)  # now the newest
    store.put(key(10), image(1000))
    kept = {e.key for e in store.entries()}
    assert key(0) in kept
    assert key(10) in kept
    assert key(1) not in kept
    assert kept - {key(0), key(10)} == {key(i) for i in range(10 - len(kept) + 2, 10)}
    assert store.stats.evicted == 11 - len(kept)


@given(st.lists(st.integers(1, 3000), max_size=12))
def test_the_bound_holds_after_every_put(tmp_path_factory: pytest.TempPathFactory, sizes: list[int]) -> None:
    path = tmp_path_factory.mktemp("bound")
    for i, size in enumerate(sizes):
        CompileCache(path, max_bytes=4000).put(key(i), image(size))
        assert sum(p.stat().st_size for p in path.iterdir()) <= 4000
    if sizes:
        assert CompileCache(path, max_bytes=4000).get(key(len(sizes) - 1)) == image(sizes[-1])


def test_an_object_beyond_the_bound_is_not_kept(tmp_path: Path) -> None:
    store = CompileCache(tmp_path / "c", max_bytes=1000)
    store.put(key(1), image(10))
    store.put(key(2), image(2000))
    assert [e.key for e in store.entries()] == [key(1)]


def test_uses_are_noted_now_and_then(store: CompileCache) -> None:
    assert store.path is not None
    store.put(key(1), image())
    used(store.path, key(1), 3600)
    before = (store.path / key(1)).stat().st_mtime_ns
    store.get(key(1))
    assert (store.path / key(1)).stat().st_mtime_ns == before
    used(store.path, key(1), 24 * 3600)
    store.get(key(1))
    assert time.time() - (store.path / key(1)).stat().st_mtime < 60


def test_half_written_files_of_dead_processes_go(store: CompileCache) -> None:
    assert store.path is not None
    store.put(key(1), image())
    names = [f"{key(2)}.123.{i}.part" for i in "ab"]
    for name in names:
        (store.path / name).write_bytes(b"half")
    used(store.path, names[0], 7200)
    (store.path / "notes.txt").write_text("not ours")
    CompileCache(store.path).put(key(3), image())
    assert {p.name for p in store.path.iterdir()} == {key(1), key(3), names[1], "notes.txt"}
    assert store.clear() == 2
    assert {p.name for p in store.path.iterdir()} == {"notes.txt"}


def test_an_object_under_another_ones_name_is_damaged(tmp_path: Path) -> None:
    said: list[str] = []
    store = CompileCache(tmp_path / "store", notify=said.append)
    store.put(key(1), image())
    store.put_failure(key(2), CompileError("refused", "m", lasting=True))
    store.put_note(key(3), {"a": 1})
    assert store.path is not None
    for number in (1, 2, 3):
        shutil.copy(store.path / key(number), store.path / key(number + 3))
    assert store.get(key(4)) is None
    assert store.get(key(5)) is None
    assert store.note(key(6)) is None
    assert store.stats.damaged == 3
    assert len(said) == 1
    assert "its checksum does not hold" in said[0]
    assert {e.key for e in store.entries()} == {key(1), key(2), key(3)}


def test_links_are_not_followed(store: CompileCache, tmp_path: Path) -> None:
    assert store.path is not None
    store.put(key(1), image())
    (tmp_path / "elsewhere").write_bytes(image(5).to_bytes())
    (store.path / key(2)).symlink_to(tmp_path / "elsewhere")
    os.mkfifo(store.path / key(3))
    assert store.get(key(2)) is None
    assert store.get(key(3)) is None
    assert [e.key for e in store.entries()] == [key(1)]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda p: p.chmod(0o770), r"others can write to it \(mode 770\)"),
        (lambda p: p.chmod(0o702), r"others can write to it \(mode 702\)"),
        (lambda p: (p.rmdir(), p.write_text("")), "Not a directory"),
    ],
)
def test_unsafe_folders_are_ignored_with_one_notice(
    tmp_path: Path, notices: list[str], spoil: Callable[[Path], object], message: str
) -> None:
    path = tmp_path / "cache"
    path.mkdir(mode=0o700)
    spoil(path)
    store = CompileCache(path, notify=notices.append)
    for _ in range(2):
        assert store.get(key(1)) is None
        store.put(key(1), image())
    assert len(notices) == 1
    assert re.search(f"compile cache {path}: .*{message}.*; going on without it", notices[0])
    for call in (store.entries, store.clear):
        with pytest.raises(CacheError, match=message):
            call()


def test_a_folder_of_another_user_is_ignored(
    tmp_path: Path, notices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    me = os.geteuid()
    CompileCache(tmp_path).put(key(1), image())
    monkeypatch.setattr(folder_module.os, "geteuid", lambda: me + 1)
    store = CompileCache(tmp_path, notify=notices.append)
    assert store.get(key(1)) is None
    assert f"belongs to user {me}, not to you ({me + 1})" in notices[0]


def test_a_folder_that_cannot_be_made(notices: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for parent in (tmp_path / "file", Path("/proc/self")):
        store = CompileCache(parent / "cache", notify=notices.append)
        store.put(key(1), image())
        store.put(key(2), image())
        assert store.get(key(1)) is None
    assert len(notices) == 2
    assert all("cannot be" in n for n in notices)


AGAIN = "kernels are compiled at each start; set ZINC_RT_CACHE_DIR to a folder that you can write to"


def test_without_a_home_folder_it_is_said_before_compiling(notices: list[str]) -> None:
    store = CompileCache(None, notify=notices.append)
    assert store.get(key(1)) is None
    assert notices == []
    for _ in range(2):
        with store.claim([key(1)]) as claimed:
            assert claimed == {key(1)}
    assert notices == [f"compile cache: there is no home folder to keep kernels in; {AGAIN}"]


AS_ORDINARY_USER = """
import os, sys
from zinc_rt.lang.cache import CompileCache, cache_key
from zinc_rt.lang.image import Image
if os.geteuid() == 0:
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
store = CompileCache(__import__("pathlib").Path(sys.argv[1]), notify=print)
print("hit" if store.get(cache_key(["1"])) else "miss")
store.put(cache_key(["2"]), Image(b"", {}, "avx2"))
store.put(cache_key(["3"]), Image(b"", {}, "avx2"))
print("hit" if store.get(cache_key(["1"])) else "miss")
"""


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A new folder whose parents every user may enter; those of tmp_path belong to this user alone."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_a_read_only_folder_still_serves(public_folder: Path) -> None:
    path = public_folder
    CompileCache(path).put(key(1), image())
    if os.geteuid() == 0:  # root writes everywhere, so the folder becomes an ordinary user's
        for p in (path, path / key(1)):
            os.chown(p, 65534, 65534)
    path.chmod(0o500)
    done = subprocess.run(
        [sys.executable, "-c", AS_ORDINARY_USER, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    path.chmod(0o700)
    lines = done.stdout.splitlines()
    assert [lines[0], lines[2]] == ["hit", "hit"], done.stderr
    assert lines[1] == f"compile cache {path}: Permission denied; going on without storing what is compiled: {AGAIN}"
    assert len(lines) == 3


@contextmanager
def small_files() -> Iterator[None]:
    """Files that cannot grow beyond 100 bytes: the second write of an object fails, as on a full disk.

    Only around the calls under test: the test run's own output may go to a file.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_half_way_leaves_nothing(store: CompileCache, notices: list[str]) -> None:
    assert store.path is not None
    with small_files():
        store.put(key(1), image(200))
        store.put(key(2), image(200))
    assert list(store.path.iterdir()) == []
    assert notices == [
        f"compile cache {store.path}: File too large; going on without storing what is compiled: {AGAIN}"
    ]


def test_a_full_disk_is_said_once(store: CompileCache, notices: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = []

    def full(*_: object, **__: object) -> None:
        attempts.append(1)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    assert store.path is not None
    store.put(key(1), image())
    monkeypatch.setattr(folder_module.os, "replace", full)
    store.put(key(2), image())
    store.put(key(3), image())
    assert [p.name for p in store.path.iterdir()] == [key(1)]
    assert store.get(key(1)) == image()
    assert len(notices) == 1
    assert "No space left on device; going on without storing" in notices[0]
    assert len(attempts) == 1


WRITER = """
import sys
from pathlib import Path
from zinc_rt.lang.cache import CompileCache, cache_key
from zinc_rt.lang.image import Image
store = CompileCache(Path(sys.argv[1]), max_bytes=int(sys.argv[2]), notify=print)
for turn in range(40):
    for i in range(8):
        wanted = Image(bytes([i]) * (1000 + i), {"f": i}, "avx2")
        found = store.get(cache_key([str(i)]))
        if found is not None and found != wanted:
            print("wrong", i)
        if found is None or turn % 3 == 0:
            store.put(cache_key([str(i)]), wanted)
"""


@pytest.mark.parametrize("max_bytes", [1 << 20, 5000])
def test_many_processes_write_and_evict_at_once(tmp_path: Path, max_bytes: int) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / "c"), str(max_bytes)]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for _ in range(3)]
    assert [w.communicate(timeout=60)[0] for w in writers] == [b""] * 3
    assert all(re.fullmatch("[0-9a-f]{64}", p.name) for p in (tmp_path / "c").iterdir())
    store = CompileCache(tmp_path / "c")
    for entry in store.entries():
        assert store.get(entry.key) is not None
    if max_bytes == 1 << 20:
        assert len(store.entries()) == 8


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"ZINC_RT_CACHE_DIR": "/a/b", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/a/b"),
        ({"ZINC_RT_CACHE_DIR": "", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/zinc_rt"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/zinc_rt"),
        ({"HOME": "/h"}, "/h/.cache/zinc_rt"),
        ({"HOME": ""}, "/of/user/.cache/zinc_rt"),
        ({"HOME": "h"}, "/of/user/.cache/zinc_rt"),
        ({"HOME": "", "XDG_CACHE_HOME": ""}, "/of/user/.cache/zinc_rt"),
        ({}, "/of/user/.cache/zinc_rt"),
    ],
)
def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], folder: str) -> None:
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_dir="/of/user"))
    for name in ("ZINC_RT_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert default_cache_dir() == Path(folder)


@pytest.mark.parametrize("home", ["", ".", None])
def test_no_home_means_no_cache(monkeypatch: pytest.MonkeyPatch, home: str | None) -> None:
    for name in ("ZINC_RT_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)

    def user(uid: int) -> SimpleNamespace:
        if home is None:
            raise KeyError(uid)
        return SimpleNamespace(pw_dir=home)

    monkeypatch.setattr(pwd, "getpwuid", user)
    assert default_cache_dir() is None


def test_the_command_shows_and_clears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kernels"
    store = CompileCache(path)
    for i in range(3):
        store.put(key(i), image(1000))
    size = sum(p.stat().st_size for p in path.iterdir())
    monkeypatch.setenv("ZINC_RT_CACHE_DIR", str(tmp_path / "other"))
    assert main(["cache", "--cache-dir", str(path)]) == 0
    out = capsys.readouterr().out
    assert str(path) in out
    assert re.search(r"objects +3\n", out)
    assert f"{size / 1024:.1f} KiB of at most 256.0 MiB" in out
    assert main(["cache", "--json"]) == 0
    nothing = {"entries": 0, "bytes": 0, "weights_files": 0, "weights_bytes": 0}
    empty = {"folder": str(tmp_path / "other"), "max_bytes": 256 << 20, **nothing}
    assert json.loads(capsys.readouterr().out) == empty
    monkeypatch.setenv("ZINC_RT_CACHE_DIR", str(path))
    assert main(["cache", "--clear", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        **empty,
        "folder": str(path),
        "removed": 3,
        "removed_bytes": size,
    }
    assert list(path.iterdir()) == []
    assert main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == f"objects removed from {path}: 0, 0 B\n"


def test_the_command_shows_and_clears_files_of_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "kernels" / "tiles"
    folder.mkdir(0o700, parents=True)
    (folder / "a.tiles").write_bytes(bytes(3000))
    (folder / "note").touch()
    assert main(["cache", "--cache-dir", str(folder.parent)]) == 0
    assert re.search(r"files of weights +1, 2\.9 KiB\n", capsys.readouterr().out)
    assert main(["cache", "--clear", "--cache-dir", str(folder.parent)]) == 0
    assert capsys.readouterr().out.endswith("files of weights removed: 1, 2.9 KiB\n")
    assert [path.name for path in folder.iterdir()] == ["note"]


def test_the_command_refuses_an_unsafe_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o777)
    assert main(["cache", "--cache-dir", str(tmp_path)]) == 1
    assert "others can write to it (mode 777); choose a folder of your own" in capsys.readouterr().err
