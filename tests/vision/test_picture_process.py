"""Pictures decoded in a process of its own: the same pixels, limits, and what a hostile one can do."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.vision.test_picture import noise, saved
from zinc_rt.utils.isolated import process as isolated
from zinc_rt.vision import decode
from zinc_rt.vision.picture import PictureError, read_picture
from zinc_rt.vision.picture_process import PictureLimits, PictureProcess

MIB = isolated.MIB


@pytest.fixture(scope="module")
def process() -> Iterator[PictureProcess]:
    made = PictureProcess()
    yield made
    made.close()


def refused(data: bytes, process: PictureProcess) -> str:
    with pytest.raises(PictureError) as raised:
        read_picture(data, decoder=process)
    return str(raised.value)


@pytest.mark.parametrize("format", decode.FORMATS)
def test_the_same_pixels(format: str, process: PictureProcess, tmp_path: Path) -> None:
    data = saved(noise(50, 30), format)
    want, got = read_picture(data), read_picture(data, decoder=process)
    assert (got.pixels.shape, got.digest) == ((30, 50, 3), want.digest)
    assert np.array_equal(got.pixels, want.pixels)
    (tmp_path / "a").write_bytes(data)
    assert np.array_equal(read_picture(tmp_path / "a", decoder=process).pixels, want.pixels)


def test_the_same_errors(process: PictureProcess) -> None:
    for data in (b"%PDF", saved(noise(40, 40))[:-900], saved(Image.new("1", (10_000, 9_000)))):
        with pytest.raises(PictureError) as raised:
            read_picture(data)
        assert refused(data, process) == str(raised.value)


def test_limits() -> None:
    photo = saved(noise(3000, 2000), "JPEG")
    small = PictureProcess(PictureLimits(address_space=64 * MIB))
    assert refused(photo, small) == "the picture is not decoded: it takes more than 64 MiB of memory to decode"
    assert read_picture(saved(noise(8, 8)), decoder=small).size == (8, 8)
    small.close()
    slow = PictureProcess(PictureLimits(seconds=0.5))
    assert read_picture(saved(noise(8, 8)), decoder=slow).size == (8, 8)
    os.kill(pid_of(slow), signal.SIGSTOP)
    assert refused(photo, slow) == "the picture is not decoded: it is not decoded after 0.5 s"
    slow.close()


def test_one_that_dies_while_it_decodes(process: PictureProcess) -> None:
    read_picture(saved(noise(8, 8)), decoder=process)
    os.kill(pid := pid_of(process), signal.SIGSTOP)
    threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
    before = time.monotonic()
    assert "the process that decodes it was ended by SIGKILL" in refused(saved(noise(8, 8)), process)
    assert time.monotonic() - before < 20
    assert read_picture(saved(noise(8, 8)), decoder=process).size == (8, 8)


@pytest.mark.parametrize("answer", [{}, {"width": 8, "height": 9}, {"width": True, "height": "8"}])
def test_answers_are_not_trusted(
    answer: dict[str, object], process: PictureProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "ask", lambda request: (answer, bytes(8 * 8 * 3)))
    assert "sent an answer that cannot be read" in refused(saved(noise(8, 8)), process)


def pid_of(process: PictureProcess) -> int:
    assert process._child is not None
    return process._child._process.pid
