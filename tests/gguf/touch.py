"""Open a file and read every byte that a user of it could: what fuzzing runs."""

from __future__ import annotations

import os

from zinc_rt.gguf import GGUFError, GGUFFile, blocks


class MemoryFile:
    """A file that is rewritten thousands of times, kept off the disk."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("case.gguf")
        self.path = f"/proc/self/fd/{self._fd}"

    def write_bytes(self, content: bytes | bytearray) -> None:
        os.ftruncate(self._fd, 0)
        assert os.pwrite(self._fd, content, 0) == len(content)

    def touch(self, content: bytes | bytearray) -> GGUFError | None:
        """Take on `content` and read all of it; see `touch_all`."""
        self.write_bytes(content)
        return touch_all(self.path)

    def close(self) -> None:
        os.close(self._fd)


def touch_all(path: str | os.PathLike[str]) -> GGUFError | None:
    """The GGUFError met on the way, or None. Any other exception passes through and fails the test."""
    try:
        with GGUFFile.open(path) as file:
            first = _metadata(file)
            for name, tensor in file.tensors.items():
                raw = file.raw(name)
                assert raw.nbytes == tensor.nbytes
                assert raw.shape == (tensor.n_rows, tensor.row_bytes)
                int(raw.sum())
                if tensor.type.supported:
                    assert blocks.dequantize(tensor.type, raw).size == tensor.n_elements
            return first
    except GGUFError as error:
        return check(error)


def _metadata(file: GGUFFile) -> GGUFError | None:
    first = None
    for key in file.metadata:
        str(file.metadata.info(key))
        try:
            file.metadata[key]
        except GGUFError as error:
            first = first or check(error)
    return first


def check(error: GGUFError) -> GGUFError:
    """Every error is one line that names the file, and not a long one."""
    message = str(error)
    assert message.isprintable(), message
    assert error.path, message
    assert error.path in message
    assert len(message) < len(error.path) + 500
    return error
