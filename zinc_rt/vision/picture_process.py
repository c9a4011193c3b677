"""The process that decodes strangers' pictures, as the runtime sees it. `picture_job` is the other side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zinc_rt.utils.isolated.process import MIB, IsolatedError, IsolatedProcess, IsolatedWork
from zinc_rt.utils.isolated.worker import pack_frame
from zinc_rt.vision.decode import MAX_BYTES, MAX_PIXELS, PictureError, check_size


@dataclass(frozen=True)
class PictureLimits:
    """Limits of decoding one picture; see `IsolationLimits`. The largest picture takes about 900 MiB."""

    address_space: int = 1536 * MIB
    cpu_seconds: int = 20
    seconds: float = 40.0


class PictureProcess(IsolatedProcess):
    """Decodes pictures in a process of its own. Threads take turns."""

    def __init__(self, limits: PictureLimits | None = None) -> None:
        super().__init__(
            IsolatedWork("zinc_rt.vision.picture_job", "decode", 3 * MAX_PIXELS), limits or PictureLimits()
        )

    def decode(self, data: bytes, name: str) -> npt.NDArray[np.uint8]:
        """The pixels of a file's bytes, u8[height, width, 3]. name: for messages.

        Raises `PictureError`, also where decoding goes over a limit, ends the process or none can be started.
        """
        if len(data) > MAX_BYTES:
            raise PictureError(f"{name} has more than {MAX_BYTES >> 20} MiB; scale the picture down")
        try:
            answer, pixels = self.ask(b"".join(pack_frame({"name": name}, data)))
        except IsolatedError as error:
            raise PictureError(f"{name} is not decoded: {error}") from None
        if "problem" in answer:
            raise PictureError(str(answer["problem"]))
        width, height = answer.get("width"), answer.get("height")
        if not isinstance(width, int) or not isinstance(height, int) or width * height * 3 != len(pixels):
            self.close()
            raise PictureError(f"{name} is not decoded: the process that decodes it sent an answer that cannot be read")
        check_size(width, height, name)
        return np.frombuffer(pixels, np.uint8).reshape(height, width, 3)
