"""Commands in this process: fast, with what they printed and their exit code."""

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.tiny import write_tiny_model
from zinc_rt.cli import options
from zinc_rt.cli.main import main


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one error line; fails if there is none or more."""
        lines = [line for line in self.err.splitlines() if "error:" in line]
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err
        return lines[0]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model that generates letters and spaces without end."""
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture(scope="session")
def templateless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same without a chat template."""
    return write_tiny_model(tmp_path_factory.mktemp("models") / "plain.gguf", template="")


@pytest.fixture(scope="session")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of an architecture that nobody knows."""
    return write_tiny_model(tmp_path_factory.mktemp("models") / "foreign.gguf", architecture="weird")


@pytest.fixture
def zinc(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, one_renderer: None
) -> Callable[..., Outcome]:
    """Run `zinc` with these arguments; `stdin` is what a pipe would bring."""
    monkeypatch.delenv("ZINC_RT_TIER", raising=False)

    def call(*args: object, stdin: str | bytes = b"") -> Outcome:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        monkeypatch.setattr(options, "_debug", False)
        capsys.readouterr()
        code = main([str(a) for a in args])
        return Outcome(code, *capsys.readouterr())

    return call
