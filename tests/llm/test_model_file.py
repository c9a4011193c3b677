"""A model whose file is damaged, or changes while it is loaded."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import zinc_rt
from tests.cli.tiny import write_tiny_model
from zinc_rt.gguf import GGUFFile
from zinc_rt.gguf.errors import FileChanged
from zinc_rt.models.errors import ModelError

N_VOCAB = 256 + 5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "tiny.gguf")


def spoil(path: Path, tokens: list[int]) -> None:
    """NaN as the output weights of some tokens."""
    with GGUFFile.open(path) as file:
        tensor = file.tensor("output.weight")
    with path.open("r+b") as raw:
        for token in tokens:
            raw.seek(tensor.offset + token * tensor.nbytes // N_VOCAB)
            raw.write(np.full(tensor.nbytes // N_VOCAB // 4, np.nan, np.float32).tobytes())


def said(lines: list[str]) -> list[str]:
    """What was told but for kernels, which may be compiled at any time."""
    return [line for line in lines if not line.startswith("compiling ")]


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize("params", [{"temperature": 0}, {"top_k": 0}, {"top_k": 5, "logprobs": 1}], ids=str)
def test_logits_that_are_nan_are_told_once_a_generation(path: Path, kernels: str, params: dict[str, float]) -> None:
    spoil(path, [1, 2, 200])
    lines: list[str] = []
    with zinc_rt.load(path, device="cpu", kernels=kernels, threads=1, notify=lines.append) as model:
        lines.clear()
        for n in (1, 2):
            assert len(model.generate("abc", max_tokens=5, seed=1, **params).token_ids) == 5  # type: ignore[arg-type]
            assert len(said(lines)) == n
    first, second = said(lines)
    assert first == second
    assert first.startswith(f"3 of {N_VOCAB} logits of token 1 are NaN; they count as -inf")


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_whole_logits_are_told_nothing_about(path: Path, temperature: float) -> None:
    lines: list[str] = []
    with zinc_rt.load(path, device="cpu", notify=lines.append) as model:
        lines.clear()
        model.generate("abc", max_tokens=5, temperature=temperature, logit_bias={65: -np.inf})
    assert said(lines) == []


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0")


def write_in_place(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-8, os.SEEK_END)
        file.write(b"\0" * 8)


def replace(path: Path) -> None:
    shutil.copy2(path, path.with_suffix(".new"))  # size and times are the same
    path.with_suffix(".new").rename(path)


CHANGES = [
    (lambda path: os.truncate(path, 4096), r"was \d+ bytes long when opened and is now 4096"),
    (grow, r"was \d+ bytes long when opened and is now \d+"),
    (write_in_place, r"was written to after it was opened"),
    (replace, r"was replaced: inode \d+ when opened, \d+ now"),
]
IDS = ["truncated", "longer", "written", "replaced"]


def later(path: Path, change: Callable[[Path], None]) -> None:
    """Change the file, with a time of change that differs whatever the clock of the file system."""
    before = path.stat()
    change(path)
    if path.stat().st_ino == before.st_ino:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))


@pytest.mark.parametrize(("change", "words"), CHANGES, ids=IDS)
def test_a_changed_file_is_noticed_by_the_next_call(path: Path, change: Callable[[Path], None], words: str) -> None:
    with zinc_rt.load(path, device="cpu") as model:
        text = model.generate("abc", max_tokens=3, seed=1).text
        assert model.generate("abc", max_tokens=3, seed=1).text == text
        later(path, change)
        for call in (model.generate, model.stream):
            with pytest.raises(FileChanged, match=words) as caught:
                call("abc")
            assert "load it again when it is complete" in str(caught.value)
            assert str(caught.value).startswith(str(path))
        with pytest.raises(FileChanged, match=words):
            model.logits([65])


@pytest.mark.parametrize("change", [c for c, _ in CHANGES[1:]], ids=IDS[1:])
def test_loading_a_changed_file_again_is_all_it_takes(path: Path, change: Callable[[Path], None]) -> None:
    with zinc_rt.load(path, device="cpu"):
        later(path, change)
        with zinc_rt.load(path, device="cpu") as again:
            assert len(again.generate("abc", max_tokens=3).token_ids) == 3


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize(("change", "words"), CHANGES[:3], ids=IDS[:3])
def test_a_stream_ends_at_the_next_step(path: Path, kernels: str, change: Callable[[Path], None], words: str) -> None:
    with zinc_rt.load(path, device="cpu", kernels=kernels, threads=1) as model:
        stream = model.stream("abc", max_tokens=10)
        next(stream)
        later(path, change)
        time.sleep(0.02)
        with pytest.raises(FileChanged, match=words):
            next(stream)


def test_what_is_read_of_the_metadata_later_is_of_the_same_file(path: Path) -> None:
    with zinc_rt.load(path, device="cpu") as model:
        later(path, write_in_place)
        with pytest.raises(FileChanged):
            _ = model.chat_template


def test_a_file_that_is_moved_or_removed_stays_good(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    with zinc_rt.load(path.name, device="cpu") as model:
        text = model.generate("abc", max_tokens=3, seed=1).text
        monkeypatch.chdir("/")
        path.rename(path.with_name("elsewhere.gguf"))
        assert model.generate("abc", max_tokens=3, seed=1).text == text
        path.with_name("elsewhere.gguf").unlink()
        assert model.generate("abc", max_tokens=3, seed=1).text == text


def test_a_file_that_changes_while_it_is_loaded(path: Path) -> None:
    def progress(done: int, total: int) -> None:
        if done == 0:
            later(path, write_in_place)

    with pytest.raises(FileChanged, match="was written to"):
        zinc_rt.load(path, device="cpu", kernels="native", progress=progress)


def test_the_command_says_it_in_one_line(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "zinc_rt", "chat", "-m", str(path), "-n", "3", "--device", "cpu"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as chat:
        assert chat.stdin is not None
        assert chat.stdout is not None
        chat.stdin.write("hello\n")
        chat.stdin.flush()
        assert chat.stdout.readline()
        os.truncate(path, 4096)
        out, err = chat.communicate("more\n", timeout=60)
    assert chat.returncode == 1
    assert out == ""
    errors = [line for line in err.splitlines() if "error" in line]
    assert len(errors) == 1
    assert "and is now 4096; load it again" in errors[0]


@pytest.mark.parametrize("kernels", ["native", "reference"])
def test_a_closed_model_has_no_file_open(kernels: str, tmp_path: Path) -> None:
    """At once: whether garbage is collected does not matter."""
    path = write_tiny_model(tmp_path / "m.gguf")

    def opened() -> int:
        found = (os.path.join("/proc/self/fd", number) for number in os.listdir("/proc/self/fd"))
        return sum(os.path.lexists(link) and os.readlink(link) == str(path) for link in found)

    gc.disable()
    try:
        model = zinc_rt.load(path, device="cpu", kernels=kernels)
        assert opened() > 0
        model.close()
        assert opened() == 0
    finally:
        gc.enable()


def test_long_names_are_cut_in_messages(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "m.gguf", architecture="x" * 65_000)
    with pytest.raises(ModelError, match=r"^architecture 'x{77}\.\.\.' is not supported$"):
        zinc_rt.load(path, device="cpu")
