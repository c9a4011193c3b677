"""Chats about pictures: the forms that a picture may have, equal answers whatever runs beside them, and errors."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import zinc_rt
from tests.helpers import soon
from tests.vision import towers
from zinc_rt.dialects.tools import RequestError
from zinc_rt.errors import UsageError
from zinc_rt.llm.load import built_in_model
from zinc_rt.llm.pictures import PicturePrompt, reading
from zinc_rt.models.errors import ModelError
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.scheduler.errors import PicturesUnavailable
from zinc_rt.scheduler.messages import Failed, Finished, Submit, Token
from zinc_rt.speculation.pace import Pace
from zinc_rt.text.errors import ChatTemplateError

PIXELS = np.random.default_rng(1).integers(0, 256, (40, 64, 3)).astype(np.uint8)
OTHER = np.random.default_rng(2).integers(0, 256, (24, 24, 3)).astype(np.uint8)
GREEDY = SamplingParams(temperature=0.0, max_tokens=10)


def png(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def data_url(pixels: np.ndarray) -> str:
    return f"data:image/png;base64,{base64.b64encode(png(pixels)).decode()}"


def asking(*parts: Any, text: str = "What is this?") -> list[dict[str, Any]]:
    return [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}]


def shown(pixels: Any) -> dict[str, Any]:
    return {"type": "image", "image": pixels}


KINDS = ("pixtral", "idefics3")
ONE_SPAN = pytest.mark.parametrize("model", soon(KINDS[:1], KINDS), indirect=True)
"""Of tests whose subject is not how a picture stands in a prompt."""


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[zinc_rt.Model]:
    """One picture a span of rows, and one in tiles with texts between them."""
    with zinc_rt.load() as plain:
        width = plain.info.n_embd
    path = towers.write(tmp_path_factory.mktemp("projector") / "mmproj.gguf", request.param, n_out=width).path
    with zinc_rt.load(mmproj=path, n_slots=4, n_batch=48) as model:
        yield model


def test_a_picture_in_any_form(model: zinc_rt.Model, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(PIXELS))
    forms = [
        shown(png(PIXELS)),
        shown(tmp_path / "a.png"),
        shown(str(tmp_path / "a.png")),
        {"type": "image_url", "image_url": {"url": data_url(PIXELS), "detail": "low"}},
        {"type": "input_image", "image_url": data_url(PIXELS)},
    ]
    prompts = [model.chat_format.prompt(asking(form)) for form in forms]
    assert len({prompt.ids for prompt in prompts}) == 1
    arrays = [model.chat_format.prompt(asking(shown(each))) for each in (PIXELS, Image.fromarray(PIXELS))]
    assert arrays[0].ids == arrays[1].ids
    (picture,) = prompts[0].pictures
    assert sum(token < 0 for token in prompts[0].ids) == picture.placed.n_rows
    assert prompts[0].text.count("<picture>") == 1
    answers = {model.chat(asking(form), params=GREEDY).text for form in (forms[0], forms[3], shown(PIXELS))}
    assert len(answers) == 1
    assert answers != {model.chat(asking(), params=GREEDY).text}


def test_rows_are_where_the_picture_is(model: zinc_rt.Model) -> None:
    """The logits behind a prompt are those of an engine that is given the rows directly."""
    prompt = model.chat_format.prompt(asking(shown(PIXELS), shown(OTHER), shown(PIXELS)))
    assert len(prompt.pictures) == 2
    assert sum(token < 0 for token in prompt.ids) == sum(p.placed.n_rows for p in prompt.pictures) + (
        prompt.pictures[0].placed.n_rows
    )
    words = [token for token in prompt.ids if token >= 0]
    assert model.detokenize(words).startswith("<|im_start|>user\n")
    given = model.image_embeddings(PIXELS)
    store = model.engine.cache.pictures
    assert store is not None
    model.chat(asking(shown(PIXELS)), params=GREEDY)
    assert store.has_rows(prompt.pictures[0].placed)
    assert given.shape == (prompt.pictures[0].placed.n_rows, model.info.n_embd)


def test_the_second_question_computes_no_tower(model: zinc_rt.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    projector = model._projector
    assert projector is not None
    first = model.chat(asking(shown(PIXELS[::-1]), text="What?"), params=GREEDY)
    monkeypatch.setattr(projector, "start", lambda tiles: pytest.fail("the tower ran again"))
    again = model.chat(asking(shown(PIXELS[::-1]), text="What?"), params=GREEDY)
    assert again.text == first.text
    prompt = model.chat_format.prompt(asking(shown(PIXELS[::-1]), text="Why?"))
    rows = [at for at, token in enumerate(prompt.ids) if token < 0]
    other = model.chat(asking(shown(PIXELS[::-1]), text="Why?"), params=GREEDY)
    assert other.generation.stats is not None
    assert other.generation.stats.cached_tokens >= rows[-1] // 16 * 16


@ONE_SPAN
def test_beside_others(model: zinc_rt.Model) -> None:
    """Equal answers alone and among others, with pictures and without; more of them than sequences."""
    pictures = [np.roll(PIXELS, n, axis=0) for n in range(3)]
    asked = [asking(shown(one), text=text) for one in pictures for text in ("What is this?", "Who is there?")]
    asked += [asking(text="What is this?"), asking(shown(pictures[0]), shown(OTHER))]
    params = SamplingParams(temperature=0.8, seed=5, max_tokens=12, repetition_penalty=1.2, presence_penalty=0.5)
    alone = [model.chat(messages, params=params).text for messages in asked]
    model.engine.cache.check_integrity()
    with ThreadPoolExecutor(len(asked)) as pool:
        together = list(pool.map(lambda messages: model.chat(messages, params=params).text, asked * 2))
    assert together == alone * 2


@ONE_SPAN
def test_drafts_change_nothing(model: zinc_rt.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pace, "lengths", lambda _, wishes, *__, **___: [3] * len(wishes))
    assert model._projector is not None
    path = model._projector.file.path
    messages = asking(shown(PIXELS), text="Tell me a story about a cat")
    params = SamplingParams(temperature=0.0, max_tokens=40)
    want = model.chat(messages, params=params).text
    with zinc_rt.load(mmproj=path, draft_model=built_in_model()) as drafting:
        assert drafting.chat(messages, params=params).text == want
        speculation = drafting.client.core.scheduler.speculation
        assert speculation is not None
        assert speculation.drafted > 10


def test_wrong_pictures(model: zinc_rt.Model) -> None:
    place = r"messages\[0\].content\[0\]"
    for part, line in (
        (shown(b"no picture"), f"{place} cannot be shown: the picture is no picture that can be read"),
        (shown("/nowhere.png"), f"{place} cannot be shown: cannot read /nowhere.png"),
        (shown(7), f"{place} cannot be shown: a picture is 7"),
        (shown(np.zeros((3, 900, 3), np.uint8)), "one side may be 200 times the other"),
        ({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}, "give data:image/png;base64"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,%%"}}, "a data: URL that is not base64"),
        ({"type": "image_url", "image_url": {}}, rf"{place}.image_url.url is None"),
        ({"type": "image_url"}, rf"{place}.image_url is None"),
        ({"type": "video_url", "video_url": {"url": "x"}}, "is a video"),
    ):
        with pytest.raises(RequestError, match=line):
            model.chat(asking(part))
    mark = "<zinc-picture-0123456789abcdef-0>"
    assert model.chat_format.prompt(asking(text=mark)).text.count(mark) == 1  # a text like any other


def test_a_template_that_drops_pictures_is_refused(model: zinc_rt.Model) -> None:
    assert model.picture_reader is not None
    prompt = PicturePrompt(reading(model.picture_reader))
    mark = prompt.mark(shown(PIXELS), "here")
    for text in ("", mark * 2):
        with pytest.raises(ChatTemplateError, match=r"each is needed once, in order"):
            prompt.encode(text, model.tokenize)


def test_requests_that_no_prompt_processor_made(model: zinc_rt.Model) -> None:
    """The core checks what comes over a socket."""
    prompt = model.chat_format.prompt(asking(shown(PIXELS)))
    core = model.client.core

    def events(submit: Submit) -> list[Any]:
        core.submit(submit)
        found: list[Any] = []
        while not core.idle:
            found += core.turn().events
        return found

    (failed,) = events(Submit("a", prompt.ids, GREEDY, 0))
    assert isinstance(failed, Failed)
    (failed,) = events(Submit("b", (*prompt.ids, -1), GREEDY, 0, pictures=prompt.pictures))
    assert "no row of the request's pictures" in failed.message
    (failed,) = events(Submit("c", prompt.ids, GREEDY, 0, pictures=prompt.pictures, echo=0))
    assert "leave out echo" in failed.message
    told = events(Submit("d", prompt.ids, GREEDY, 0, pictures=prompt.pictures))
    assert isinstance(told[-1], Finished)
    assert sum(isinstance(event, Token) for event in told) == len(
        model.chat(asking(shown(PIXELS)), params=GREEDY).generation.token_ids
    )
    half = [event.id for event in told if isinstance(event, Token)]
    assert half


def test_without_a_projector(tmp_path: Path) -> None:
    with zinc_rt.load() as plain:
        width = plain.info.n_embd
        with pytest.raises(RequestError, match=r"content\[0\] is a picture \(image\), which this model does not take"):
            plain.chat(asking(shown(PIXELS)))
        core = plain.client.core
        core.submit(Submit("a", (1, -5), GREEDY, 0, pictures=()))
        assert "outside the vocabulary" in core.turn().events[0].message
    file = tmp_path / "story.gguf"
    file.write_bytes(built_in_model().read_bytes())
    lines: list[str] = []
    with zinc_rt.load(file, mmproj="auto", notify=lines.append) as none:
        assert none.picture_reader is None
    towers.write(tmp_path / "mmproj-other.gguf", "pixtral", n_out=width + 8)
    with zinc_rt.load(file, mmproj="auto", notify=lines.append) as none:
        assert none.picture_reader is None
    assert any("no pictures" in line and "another model" in line for line in lines)
    with pytest.raises(ModelError, match="another model"):
        zinc_rt.load(file, mmproj=tmp_path / "mmproj-other.gguf")
    towers.write(tmp_path / "mmproj-other.gguf", "pixtral", n_out=width)
    with zinc_rt.load(file, mmproj="auto") as reads:
        assert reads.picture_reader is not None
    with pytest.raises(UsageError, match="mmproj"):
        zinc_rt.load(file, mmproj=7)  # type: ignore[arg-type]
    assert issubclass(PicturesUnavailable, UsageError)
