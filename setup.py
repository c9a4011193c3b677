"""The build's one step beyond pyproject.toml: the wheel notes the commit that it was made from, for `zinc --version`."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithCommit(build_py):
    """Copies the modules, then writes the commit beside them where the source is a clone."""

    def run(self) -> None:
        """See setuptools."""
        super().run()
        if self.editable_mode:
            return  # an editable installation reads the clone itself
        root = Path(__file__).resolve().parent
        with suppress(OSError, subprocess.CalledProcessError):
            git = ["git", "-C", str(root), "rev-parse", "--verify", "HEAD"]
            if (root / ".git").exists():
                found = subprocess.run(git, capture_output=True, text=True, check=True).stdout
                (Path(self.build_lib) / "zinc_rt" / "commit.txt").write_text(found)


setup(cmdclass={"build_py": BuildWithCommit})
