"""Words that must not get into a report: they name a person, a machine or one piece of hardware."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import socket
from collections.abc import Iterable
from typing import Any, Final

from zinc_rt.amdgpu.kfd.topology import gpu_nodes, node_properties
from zinc_rt.backends.probe import DRM_CLASS
from zinc_rt.utils.linux import Linux

HIDDEN: Final = "[removed]"
_OWN_FILES: Final = ("unique_id", "serial_number", "uuid")
_IDS: Final = ("unique_id", "hive_id")
_PUBLIC: Final = ("/dev/", "/sys/", "/proc/")
_PATH: Final = re.compile(r"(?<![\w.:/])~?/[\w.@+~-]+(?:/[\w.@+~-]*)+")
_SHORTEST: Final = 3
_LONG: Final = 10
_COMMON: Final = frozenset({"root", "render", "video", "amd", "amdgpu", "gpu", "localhost"})


def secrets(linux: Linux) -> frozenset[str]:
    """Words of this machine that a report must not hold: ids of its cards, its name, the user and the home folder."""
    words = {os.path.expanduser("~"), os.environ.get("HOME", ""), os.environ.get("USER", ""), socket.gethostname()}
    words |= {socket.gethostname().partition(".")[0]}
    with contextlib.suppress(OSError, KeyError, ImportError):
        words.add(getpass.getuser())
    with contextlib.suppress(OSError):
        for name in linux.list_dir(DRM_CLASS):
            for file in _OWN_FILES:
                with contextlib.suppress(OSError):
                    words |= _forms(linux.read_text(f"{DRM_CLASS}/{name}/device/{file}").strip())
    with contextlib.suppress(OSError):
        for node in gpu_nodes(linux):
            properties = node_properties(linux, node.node_index)
            words |= {form for key in _IDS for form in _forms(str(properties.get(key, 0)))}
    return frozenset(word for word in words if len(word) >= _SHORTEST and word not in _COMMON and word != "/")


def _forms(text: str) -> set[str]:
    """A number as it may be written: as it is, and in base 10 and 16."""
    found = {text}
    for base in (10, 16):
        with contextlib.suppress(ValueError):
            number = int(text, base)
            found |= {str(number), f"{number:x}", f"{number:016x}"}
    return {form for form in found if len(form) >= 8 or form == text}


def scrubbed(tree: Any, words: Iterable[str]) -> Any:
    """The same tree of dicts and lists without these words in its texts, and without paths of anything but devices."""
    ordered = sorted(words, key=len, reverse=True)
    # Short words stand alone: a user called "me" is no part of "memory".
    forms = (re.escape(w) if len(w) >= _LONG else rf"(?<![^\W_]){re.escape(w)}(?![^\W_])" for w in ordered)
    return _scrubbed(tree, re.compile("|".join(forms), re.IGNORECASE) if ordered else None)


def _scrubbed(tree: Any, pattern: re.Pattern[str] | None) -> Any:
    if isinstance(tree, dict):
        return {key: _scrubbed(value, pattern) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_scrubbed(value, pattern) for value in tree]
    if isinstance(tree, int) and not isinstance(tree, bool) and pattern is not None and pattern.fullmatch(str(tree)):
        return HIDDEN
    if not isinstance(tree, str):
        return tree
    text = pattern.sub(HIDDEN, tree) if pattern is not None else tree
    return _PATH.sub(lambda m: m[0] if m[0].startswith(_PUBLIC) else HIDDEN, text)
