"""The control groups that limit this process: its own and all above it, in either version of Linux's interface."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
GROUPS = Path("/proc/self/cgroup")


def limiting_folders(controller: str, root: Path = ROOT, groups: Path = GROUPS) -> Iterator[Path]:
    """Folders where limits of a controller ("cpu", "memory") may stand. Each of them binds: the least counts.

    A container often sees its own group as the root, whatever the path is called outside, so the root is one of them.
    """
    yield root
    yield root / controller
    try:
        lines = groups.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        above, here = (root / controller if controllers else root), Path(path.strip().lstrip("/"))
        if ".." not in here.parts:
            for part in (here, *here.parents)[:-1]:
                yield above / part
