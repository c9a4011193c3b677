"""What the build does beyond pyproject.toml: archive and wheel note the commit that they were made from."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
NAME = "zinc_rt/commit.txt"


def note_commit(tree: Path) -> None:
    """Write the commit into a tree of the package: the clone's, or the one that the archive brought."""
    if (ROOT / ".git").exists():
        with suppress(OSError, subprocess.CalledProcessError):
            command = ["git", "-C", str(ROOT), "rev-parse", "--verify", "HEAD"]
            (tree / NAME).write_text(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    elif (ROOT / NAME).exists():
        (tree / NAME).write_text((ROOT / NAME).read_text())


class BuildWithCommit(build_py):
    """Copies the modules. An editable installation reads the clone itself."""

    def run(self) -> None:
        """See setuptools."""
        super().run()
        if not self.editable_mode:
            note_commit(Path(self.build_lib))


class ArchiveWithCommit(sdist):
    """The archive of the sources."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """See setuptools."""
        super().make_release_tree(base_dir, files)
        note_commit(Path(base_dir))


setup(cmdclass={"build_py": BuildWithCommit, "sdist": ArchiveWithCommit})
