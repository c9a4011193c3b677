"""What `mypy --strict` finds in a user's program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "typed_program.py"


@pytest.mark.slow  # mypy reads the whole package where it has no cache
@pytest.mark.timeout(600)
def test_mypy_finds_what_is_wrong_and_nothing_else() -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PROGRAM.parents[1], check=False)
    found = re.findall(rf"^.*{PROGRAM.name}:(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    lines = PROGRAM.read_text().splitlines()
    expected = [at for at, line in enumerate(lines, 1) if line.endswith("# error")]
    assert sorted({int(at) for at, _ in found}) == expected, done.stdout + done.stderr
    assert done.stdout.count(": error:") == len(found)
