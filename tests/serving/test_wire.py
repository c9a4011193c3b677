"""Messages come out of the wire as they went in, however it cuts them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zinc_rt.engine.pictures import PlacedPicture
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.scheduler import messages as m
from zinc_rt.serving import wire
from zinc_rt.serving.api.limits import PIXEL_BYTES
from zinc_rt.vision.shown import PixelTile, ShownPicture


def shown(pixels: bytes) -> ShownPicture:
    return ShownPicture(PlacedPicture(b"d" * 32, 4, 2, 2), (PixelTile(len(pixels) // 3, 1, pixels),))


TO: list[wire.ToEngine] = [
    m.Submit("r", (1, 2), SamplingParams(logit_bias={3: -math.inf, 4: 0.1}, stop=("é",)), 2**64 - 1),
    m.Submit("r", (), SamplingParams(), 0, "t", m.QoS.batch, b"\x00\xff", m.Grammar("g", (1,)), (5, 6), 2.5, 2),
    m.Submit("r", (1, -5), SamplingParams(), 0, pictures=(shown(b"rgbrgb"), shown(b""))),
    m.Cancel("r", m.CancelReason.deadline),
    m.TenantShare("t", 2.0, 0.5, 3),
    m.Ping(7),
    wire.Start("a:b", {"path": "x", "n": 3, "none": None}),
]
FROM: list[wire.FromEngine] = [
    m.EngineInfo("cpu", 4096, 16, 512, "f16", 65536),
    m.StepReport(0),
    m.StepReport(
        9,
        (
            m.Admitted("r", 16, 0.25),
            m.PromptLogprobs("r", 1, (-0.5, -math.inf), (((6, -0.1), (7, -math.inf)), ())),
            m.Token("r", 5),
            m.Token("r", 6, -0.1, ((6, -0.1), (7, -math.inf))),
            m.Finished("r", m.FinishReason.stop, m.Usage(3, 1, 2, preemptions=1), 2),
            m.Failed("s", m.Fault.poisoned, "m", m.Usage(1)),
        ),
        m.EngineStatus(1, 2, 3),
        0.5,
        4,
        5,
        6,
        "lost",
        m.StepTimes(0.25, 0.125, (0.5, 1e-9)),
    ),
    wire.Notice("line"),
    wire.Progress(1, 2),
    wire.NotLoaded("m", True, "advice"),
]


@given(st.data())
def test_there_and_back(data: st.DataObject) -> None:
    sent = data.draw(st.lists(st.sampled_from(TO), max_size=5))
    given_back = data.draw(st.lists(st.sampled_from(FROM), max_size=5))
    for messages, unpack in ((sent, wire.unpack_to), (given_back, wire.unpack_from)):
        stream = b"".join(map(wire.pack, messages))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
        frames, found = wire.Frames(), []
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            found += map(unpack, frames.add(stream[start:end]))
        assert found == messages


@given(st.binary(max_size=40))
def test_other_bytes(data: bytes) -> None:
    for unpack in (wire.unpack_to, wire.unpack_from):
        try:
            unpack(data)
        except wire.WireError:
            continue


def test_a_frame_that_is_too_large() -> None:
    with pytest.raises(wire.WireError, match="4294967295"):
        wire.Frames().add(b"\xff\xff\xff\xff")


def test_a_request_with_as_many_pixels_as_one_may_have_goes_through() -> None:
    sent = m.Submit("r", (1,) * 100_000, SamplingParams(), 0, pictures=(shown(bytes(PIXEL_BYTES // 3 * 3)),))
    (frame,) = wire.Frames().add(wire.pack(sent))
    assert wire.unpack_to(frame) == sent
