"""A hub with one model, and the command in this process with a home of its own."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from tests.cli.conftest import Outcome
from tests.hub.server import Hub, serving
from zinc_rt.cli import options, pull
from zinc_rt.cli.main import main
from zinc_rt.hub import download
from zinc_rt.llm.load import built_in_model

REPO = "someone/story-GGUF"
STORY = built_in_model().read_bytes()
Zinc = Callable[..., Outcome]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The hub that this process asks."""
    files = {
        "story-Q8_0.gguf": STORY,
        "story-Q4_K_M.gguf": STORY + b"\0",
        "story-imatrix.gguf": b"x",
        "README.md": b"hi",
    }
    with serving(Hub({REPO: files, "someone/text": {"README.md": b"hi"}})) as made:
        monkeypatch.setattr(constants, "ENDPOINT", made.url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setattr(download, "_PAUSE", 0)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.setenv("NO_PROXY", "*")
        yield made


@pytest.fixture
def zinc(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Zinc:
    """Run `zinc` with these arguments, without measuring the memory."""
    monkeypatch.setattr(pull, "_speed_line", lambda *_: iter(["measured"]))

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b""), encoding="utf-8"))
        monkeypatch.setattr(options, "_debug", False)
        capsys.readouterr()
        code = main([str(each) for each in arguments])
        return Outcome(code, *capsys.readouterr())

    return run


def blobs(tmp_path: Path) -> list[Path]:
    """What lies among the blobs of the cache."""
    return sorted((tmp_path / "hub").glob("models--*/blobs/*"))


def failed(done: Outcome, code: int, *words: str) -> None:
    """One line, without a traceback, with these words."""
    assert done.code == code, done.err
    assert done.out == ""
    assert all(word in done.error for word in words), done.error
    assert "internal error" not in done.error
