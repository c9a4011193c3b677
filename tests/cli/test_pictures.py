"""Pictures at the command line: `zinc run --image`, `zinc chat` with /image and pasted paths, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import zinc_rt
from tests.cli.tiny import write_tiny_model
from tests.vision import towers
from zinc_rt.cli.picture_options import leading_pictures
from zinc_rt.vision.projector import Projector

PIXELS = np.random.default_rng(1).integers(0, 256, (24, 40, 3)).astype(np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with its projector beside it, and pictures."""
    made = tmp_path_factory.mktemp("seeing")
    write_tiny_model(made / "tiny.gguf")
    with zinc_rt.load(made / "tiny.gguf") as model:
        towers.write(made / "mmproj-tiny-F16.gguf", "pixtral", n_out=model.info.n_embd)
    Image.fromarray(PIXELS).save(made / "cat.png")
    Image.fromarray(PIXELS[::-1]).save(made / "my dog.png")
    return made


def answer(folder: Path, *messages: object) -> str:
    with zinc_rt.load(folder / "tiny.gguf", mmproj="auto") as model:
        return model.chat(messages, seed=3, max_tokens=12).text


def asked(text: str, *pictures: str | Path) -> dict[str, object]:
    parts = [{"type": "image", "image": path} for path in pictures]
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


def test_run(zinc, folder):
    model, cat, dog = folder / "tiny.gguf", folder / "cat.png", folder / "my dog.png"
    options = ("-m", model, "-s", 3, "-n", 12)
    want = answer(folder, asked("what", cat, dog))
    assert zinc("run", *options, "--image", cat, "--image", dog, "what").out == f"{want}\n"
    one = answer(folder, asked("what", dog))
    assert zinc("run", *options, "--image", "-", "what", stdin=dog.read_bytes()).out == f"{one}\n"
    assert one not in (want, answer(folder, asked("what")))
    other = folder / "elsewhere"
    other.mkdir(exist_ok=True)
    named = other / "projector.gguf"
    named.write_bytes((folder / "mmproj-tiny-F16.gguf").read_bytes())
    assert zinc("run", *options, "--mmproj", named, "--image", dog, "what").out == f"{one}\n"
    said = json.loads(zinc("run", *options, "--image", dog, "what", "--json").out)
    assert said["text"] == one
    assert said["prompt_tokens"] > 15


def test_run_refuses(zinc, folder, tiny):
    model, cat = folder / "tiny.gguf", folder / "cat.png"
    for options, code, words in (
        (("-m", model, "--image", folder / "none.png", "what"), 2, "cannot read"),
        (("-m", model, "--image", model, "what"), 2, "is no picture that can be read"),
        (("-m", tiny, "--image", cat, "what"), 2, "lies beside"),
        (("--image", cat, "what"), 2, "lies beside the model in the package: give it with --mmproj FILE"),
        (("-m", model, "--no-mmproj", "--image", cat, "what"), 2, "--image needs the projector"),
        (("-m", model, "--no-mmproj", "--mmproj", cat, "what"), 2, "--mmproj and --no-mmproj are both given"),
        (("-m", model, "--image", cat, "--raw", "what"), 2, "--image is for answers"),
        (("-m", model, "--mmproj", model, "--image", cat, "what"), 1, "a projector (mmproj-*.gguf) is needed"),
    ):
        outcome = zinc("run", *options)
        assert outcome.code == code, outcome.err
        assert words in outcome.error
        assert outcome.out == ""


def test_states(zinc, folder, tmp_path, monkeypatch):
    """A saved text with a picture needs no tower again, and no projector's rows."""
    model, cat, state = folder / "tiny.gguf", folder / "cat.png", tmp_path / "state"
    options = ("run", "-m", model, "-s", 3, "-n", 12, "--image", cat)
    first = zinc(*options, "what is this", "--save-state", state)
    assert first.code == 0, first.err
    monkeypatch.setattr(Projector, "start", lambda *_: pytest.fail("the tower ran again"))
    again = zinc(*options, "what is this", "--load-state", state)
    assert again.out == first.out
    assert "from cache" in again.err
    other = zinc("run", "-m", model, "--no-mmproj", "-n", 4, "what", "--load-state", state)
    assert "holds a text with pictures; load the model with its projector (--mmproj)" in other.error
    raw = state.read_bytes()
    state.write_bytes(raw[:200] + bytes([raw[200] ^ 1]) + raw[201:])
    assert zinc(*options, "what is this", "--load-state", state).code == 1


def test_chat(zinc, folder, tmp_path):
    model, cat, dog = folder / "tiny.gguf", folder / "cat.png", folder / "my dog.png"
    talk, saved = ("chat", "-m", model, "-s", 3, "-n", 12), tmp_path / "c.json"
    first = answer(folder, asked("what", cat))
    second = answer(folder, asked("what", cat), {"role": "assistant", "content": first}, asked("and this", dog))
    lines = f"/image {cat}\nwhat\n'{dog}' and this\n/save {saved}\n/tokens\n"
    outcome = zinc(*talk, stdin=lines)
    assert outcome.out == f"{first}\n{second}\n"
    assert outcome.err.count("the next message has 1 picture") == 2
    assert saved.read_text().count("data:image/png;base64,") == 2
    loaded = zinc(*talk, stdin=f"/load {saved}\n/undo\n'{dog}' and this\n")
    assert loaded.out == f"{second}\n"
    alone = zinc(*talk, stdin=f"{cat}\nwhat\n")  # a path alone waits for words
    assert alone.out == f"{first}\n"
    none = zinc("chat", "-m", model, "--no-mmproj", stdin=f"/image {cat}\n")
    assert "reads no pictures here; give its projector with --mmproj FILE" in none.error
    saved.write_text(json.dumps({"system": None, "messages": [{"role": "user", "content": [7]}]}))
    assert "is no saved conversation" in zinc(*talk, stdin=f"/load {saved}\n").error


def test_pasted_paths(tmp_path, monkeypatch):
    names = [tmp_path / name for name in ("a.png", "b c.JPG", "d'e.webp")]
    for path in names:
        path.write_bytes(b"")
    a, b, c = map(str, names)
    for line, paths, rest in (
        (f"{a} what", [a], "what"),
        (f"'{b}' \"{c}\"  what is it", [b, c], "what is it"),
        (b.replace(" ", "\\ "), [b], ""),
        (f"file://{b.replace(' ', '%20')} x", [b], "x"),
        (f"look at {a}", [], f"look at {a}"),
        (f"{tmp_path}/none.png x", [], f"{tmp_path}/none.png x"),
        ("it's", [], "it's"),
        ("", [], ""),
    ):
        assert leading_pictures(line) == (paths, rest)
