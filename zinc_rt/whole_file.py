"""Files that are whole or not there."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: str | Path) -> Iterator[BinaryIO]:
    """A new file to write to. It gets its name when the `with` block ends, complete and on disk.

    The bytes go to a file in the same folder, ending in `.tmp`; a link keeps pointing. After any failure none of them
    stays, and an older file of that name is unchanged. A device or pipe is written to as it is.

    Raises `OSError`, and `ValueError` for a path with a NUL character.
    """
    final = os.path.realpath(path)
    if os.path.exists(final) and not os.path.isfile(final):
        with open(final, "wb") as out:
            yield out
        return
    part = f"{final}.{secrets.token_hex(4)}.tmp"
    # Opened here and not by tempfile, whose files are private: these get the usual permissions.
    with open(part, "xb") as out:
        try:
            yield out
            out.flush()
            os.fsync(out.fileno())
            os.replace(part, final)
        except BaseException:
            with suppress(OSError):
                os.unlink(part)
            raise
