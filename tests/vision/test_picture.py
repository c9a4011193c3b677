"""Pictures: what is decoded and how, resampling against Pillow, bad files, fitting."""

from __future__ import annotations

import io
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from zinc_rt.models.towers.resize import FILTERS, fit, resize
from zinc_rt.models.towers.tower import Fitting
from zinc_rt.vision import decode
from zinc_rt.vision.picture import PictureError, read_picture

PILLOWS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
SIDES = st.integers(1, 90)


def noise(width: int, height: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def saved(pixels: np.ndarray | Image.Image, format: str = "PNG", **how: object) -> bytes:
    out = io.BytesIO()
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    image.save(out, format, **how)
    return out.getvalue()


@given(SIDES, SIDES, SIDES, SIDES, st.sampled_from(sorted(FILTERS)), st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_resampling_is_pillows_to_the_byte(w: int, h: int, width: int, height: int, filter: str, seed: int) -> None:
    pixels = noise(w, h, seed)
    wide = Image.fromarray(pixels).resize((width, h), PILLOWS[filter])  # Pillow may take the other axis first
    want = np.asarray(wide.resize((width, height), PILLOWS[filter]))
    assert np.array_equal(resize(pixels, width, height, filter), want)


@pytest.mark.parametrize("name", FILTERS)
def test_photos_become_smaller(name: str) -> None:
    pixels = noise(1200, 31)
    want = np.asarray(Image.fromarray(pixels).resize((211, 31), PILLOWS[name]).resize((211, 17), PILLOWS[name]))
    assert np.array_equal(resize(pixels, 211, 17, name), want)


def test_fitting_leaves_black_edges() -> None:
    got = fit(np.full((10, 40, 3), 200, np.uint8), 20, 20, "bicubic")
    assert (got[:7] == 0).all()
    assert (got[7:12] == 200).all()
    assert (got[12:] == 0).all()
    same = noise(8, 6)
    assert np.array_equal(fit(same, 8, 6, "bicubic"), same)


@pytest.mark.parametrize(
    ("size", "want"),
    [((768, 768), (768, 768)), ((4000, 3000), (2336, 1760)), ((10, 10), (96, 96)), ((1000, 20), (992, 32))],
)
def test_sizes_of_qwen3vl(size: tuple[int, int], want: tuple[int, int]) -> None:
    """The figures of Qwen3-VL: patches of 16, blocks of 2, 8 to 4096 rows."""
    assert Fitting("bicubic", align=32, least=8 * 32 * 32, most=4096 * 32 * 32).size(*size) == want


def test_all_ways_to_give_a_picture(tmp_path: Path) -> None:
    pixels = noise(9, 7)
    data = saved(pixels)
    (tmp_path / "a.png").write_bytes(data)
    for source in (pixels, data, tmp_path / "a.png", str(tmp_path / "a.png"), Image.fromarray(pixels)):
        assert np.array_equal(read_picture(source).pixels, pixels)
    assert (
        read_picture(data).digest
        == read_picture(tmp_path / "a.png").digest
        != read_picture(saved(noise(9, 7, 1))).digest
    )
    assert read_picture(data).size == (9, 7)


@pytest.mark.parametrize("format", ["BMP", "GIF", "WEBP", "JPEG"])
def test_other_formats(format: str) -> None:
    flat = np.full((16, 24, 3), (200, 40, 90), np.uint8)
    got = read_picture(saved(flat, format)).pixels
    assert got.shape == flat.shape
    assert np.abs(got.astype(int) - flat).max() <= 6


def test_unusual_pixels() -> None:
    """Transparency is left out, 16 bits keep the high ones, CMYK becomes colours, the first frame counts."""
    pixels = noise(8, 5)
    clear = np.dstack([pixels, np.zeros((5, 8), np.uint8)])
    assert np.array_equal(read_picture(saved(clear)).pixels, pixels)
    deep = np.random.default_rng(1).integers(0, 1 << 16, (5, 8), dtype=np.uint16)
    assert np.array_equal(read_picture(saved(Image.fromarray(deep))).pixels, np.repeat((deep >> 8)[:, :, None], 3, 2))
    assert read_picture(saved(Image.fromarray(pixels).convert("CMYK"), "JPEG")).pixels.shape == (5, 8, 3)
    frames = [Image.fromarray(np.full((4, 4, 3), value, np.uint8)) for value in (10, 200)]
    moving = saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert (read_picture(moving).pixels == 10).all()


def test_photos_are_turned_as_exif_says() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    assert read_picture(saved(noise(8, 5), "JPEG", exif=exif.tobytes())).size == (5, 8)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (b"", "is no picture that can be read"),
        (b"%PDF-1.7 not a picture", "its first bytes are of no known format"),
        (saved(noise(40, 40))[:-900], "is no picture that can be read"),
        ("/nowhere/cat.png", "cannot read /nowhere/cat.png: No such file"),
        (np.zeros((4, 4), np.uint8), "uint8[height, width, 3] is needed"),
        (np.zeros((4, 4, 3), np.float32), "float32[4, 4, 3]"),
        (np.zeros((0, 4, 3), np.uint8), "there is nothing to see"),
        (np.zeros((1, 201, 3), np.uint8), "one side may be 200 times the other"),
        (7, "a picture is 7; a path, bytes"),
        (saved(Image.new("1", (10_000, 9_000))), "10000 x 9000 pixels; the limit is 67 million"),
    ],
)
def test_what_cannot_be_read(source: object, words: str) -> None:
    with pytest.raises(PictureError) as raised:
        read_picture(source)  # type: ignore[arg-type]
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_files_that_are_too_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(decode, "MAX_BYTES", 1 << 20)
    (tmp_path / "a.png").write_bytes(saved(noise(8, 8)) + bytes(1 << 20))
    with pytest.raises(PictureError, match="more than 1 MiB"):
        read_picture(tmp_path / "a.png")


@pytest.mark.parametrize("format", decode.FORMATS)
def test_damaged_files(format: str) -> None:
    """Bytes changed, cut out and put in: pixels or one clear line."""
    whole, rng, refused = saved(noise(20, 14), format), random.Random(format), []
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(len(data))
            match rng.randrange(3):
                case 0:
                    data[at] = rng.randrange(256)
                case 1:
                    del data[at : at + rng.randint(1, 30)]
                case _:
                    data[at:at] = rng.randbytes(rng.randint(1, 8))
            if not data:
                break
        try:
            assert read_picture(bytes(data)).pixels.dtype == np.uint8
        except PictureError as error:
            refused.append(str(error))
    assert len(refused) > 40 or format == "BMP"
    assert not any("\n" in line for line in refused)
