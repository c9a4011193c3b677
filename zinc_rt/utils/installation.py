"""Facts about the installation: version, commit, compiler, instruction set."""

from __future__ import annotations

import contextlib
import json
import platform
from pathlib import Path
from typing import Any, Final

import zinc_rt
from zinc_rt.lang.cache import llvm_version
from zinc_rt.lang.target import host_targets

_DISTRIBUTION: Final = "zinc_rt"
COMMIT_FILE: Final = "commit.txt"
"""In the package, where a build from a repository writes its commit (`setup.py`)."""


def software() -> dict[str, Any]:
    """Versions of what runs here; `commit` is None where the installation does not know it, `llvm` where llvmlite is
    missing, `isa` where no level of native code fits the processor.
    """
    levels = host_targets()
    return {
        "version": zinc_rt.__version__,
        "commit": commit(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "llvmlite": llvm_version(),
        "llvm": _llvm(),
        "machine": platform.machine(),
        "isa": levels[0].name if levels else None,
    }


def version_line() -> str:
    """One line: version, commit, LLVM, instruction set."""
    found = software()
    short = f" (commit {found['commit'][:10]})" if found["commit"] else ""
    compiler = f"LLVM {found['llvm']}" if found["llvm"] else "no LLVM"
    return f"{found['version']}{short}, {compiler}, {found['machine']} {found['isa'] or 'without native kernels'}"


def _llvm() -> str | None:
    try:
        from llvmlite.binding import llvm_version_info
    except ImportError:
        return None
    return ".".join(map(str, llvm_version_info))


def commit() -> str | None:
    """The commit that was installed: of the clone that the package lies in, of a build from one, or of an address with
    a version; None where none of them is known.
    """
    package = Path(__file__).resolve().parents[1]
    with contextlib.suppress(OSError):
        return commit_of(package.parent / ".git")
    with contextlib.suppress(OSError):
        return (package / COMMIT_FILE).read_text().strip() or None
    from importlib import metadata

    with contextlib.suppress(metadata.PackageNotFoundError, ValueError, AttributeError):
        origin = metadata.distribution(_DISTRIBUTION).read_text("direct_url.json")
        if origin and (found := json.loads(origin).get("vcs_info", {}).get("commit_id")):
            return str(found)
    return None


def commit_of(git: Path) -> str | None:
    """What HEAD is. git: the folder, or a work tree's file that names its own. Raises `OSError`."""
    common = git
    if git.is_file():
        git = Path(git.read_text().removeprefix("gitdir:").strip())
        common = (git / (git / "commondir").read_text().strip()).resolve()
    head = (git / "HEAD").read_text().strip()
    if not head.startswith("ref: "):
        return head
    name = head.removeprefix("ref: ")
    with contextlib.suppress(OSError):
        return (common / name).read_text().strip()
    lines = (line.split() for line in (common / "packed-refs").read_text().splitlines())
    return next((line[0] for line in lines if len(line) == 2 and line[1] == name), None)
