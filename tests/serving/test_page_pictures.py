"""Pictures on the chat page, in a browser: chosen, pasted, dropped, kept, asked again. See `test_page_browser`."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from tests.serving.api.fake import FakeClient
from tests.serving.browser import answered, at_port, chromium, page_at, scripted
from tests.serving.pictures import base64_of, picture, write_projector
from tests.serving.test_page_chats import audit, needs_axe
from zinc_rt.gguf import GGUFFile
from zinc_rt.llm.load import built_in_model
from zinc_rt.models import define
from zinc_rt.serving.api.app import App
from zinc_rt.serving.api.config import ServerConfig
from zinc_rt.serving.api.logs import make_logger
from zinc_rt.serving.api.pictures import RequestPictures
from zinc_rt.serving.api.served_model import ServedModel
from zinc_rt.serving.api.service import Service
from zinc_rt.text import Tokenizer
from zinc_rt.vision.projector import with_projector

pytestmark = pytest.mark.slow

SMALL = picture()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FakeClient, str]]:
    """The engine and the address of a server whose model reads pictures."""
    path = write_projector(tmp_path_factory.mktemp("projector"))
    with GGUFFile.open(built_in_model()) as file, GGUFFile.open(path) as shown:
        pictures = RequestPictures(with_projector(define(file), file, shown)[0], shown.identity)
        tokenizer = Tokenizer.from_metadata(file.metadata)
        model = ServedModel.read(file, tokenizer, 8192, ["story"], pictures, path)
    ids = tokenizer.encode("I see.", add_special=False)
    client = FakeClient(lambda request: ids, n_ctx=8192)
    with at_port(App(Service(ServerConfig(), client, model, make_logger(io.StringIO()), None, None))) as url:
        yield client, url
    model.close()


@pytest.fixture
def page(browser: Browser, engine: tuple[FakeClient, str]) -> Iterator[Page]:
    with page_at(browser, engine[1], 360, 640) as made:
        expect(made.get_by_role("button", name="Add pictures")).to_be_visible()
        yield made


def choose(page: Page, *files: tuple[str, str, bytes]) -> None:
    given: list[Any] = [{"name": name, "mimeType": kind, "buffer": data} for name, kind, data in files]
    page.set_input_files("#pictures", given)


def ask(page: Page, text: str) -> None:
    page.fill("#text", text)
    page.get_by_role("button", name="Send").click()
    answered(page)


def sources(page: Page, where: str) -> list[str]:
    return list(page.locator(f"{where} img").evaluate_all("all => all.map(one => one.src)"))


def hand_over(page: Page, kind: str, target: str, data: bytes) -> None:
    """Paste or drop a picture."""
    page.evaluate(
        """([kind, target, data]) => {
            const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0)), moved = new DataTransfer();
            moved.items.add(new File([bytes], "a.png", { type: "image/png" }));
            const made = kind === "paste"
                ? new ClipboardEvent("paste", { clipboardData: moved, bubbles: true, cancelable: true })
                : new DragEvent("drop", { dataTransfer: moved, bubbles: true, cancelable: true });
            document.querySelector(target).dispatchEvent(made);
        }""",
        [kind, target, base64_of(data)],
    )


def test_a_picture_is_asked_about_kept_and_asked_again(page: Page, engine: tuple[FakeClient, str]) -> None:
    client, _ = engine
    choose(page, ("a.png", "image/png", SMALL))
    expect(page.locator("#shown img")).to_have_count(1)
    assert page.locator("#pictures").get_attribute("accept") == "image/*"
    ask(page, "What is it?")
    url = f"data:image/png;base64,{base64_of(SMALL)}"
    assert sources(page, "article.user") == [url]
    assert sources(page, "#shown") == []
    first = client.submitted[-1]
    assert len(first.pictures) == 1
    ask(page, "And then?")
    assert client.submitted[-1].pictures == first.pictures
    assert client.submitted[-1].prompt[: len(first.prompt) - 4] == first.prompt[:-4]
    page.reload()
    expect(page.locator("article.user img")).to_have_count(1)
    page.locator("article.assistant").first.get_by_role("button", name="Replay", exact=True).click()
    expect(page.locator("article.assistant .facts").first).to_contain_text("replay: equal")
    assert client.submitted[-1].prompt == first.prompt
    page.get_by_role("button", name="Edit").first.click()
    page.locator("article textarea").fill("Is it red?")
    page.locator("article").get_by_role("button", name="Send").click()
    answered(page)
    assert client.submitted[-1].pictures == first.pictures
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_pictures_are_pasted_dropped_and_taken_away(page: Page, engine: tuple[FakeClient, str]) -> None:
    hand_over(page, "paste", "#text", SMALL)
    expect(page.locator("#shown img")).to_have_count(1)
    hand_over(page, "drop", "#log", picture(2))
    expect(page.locator("#shown img")).to_have_count(2)
    page.get_by_role("button", name="Remove picture 1").click()
    assert sources(page, "#shown") == [f"data:image/png;base64,{base64_of(picture(2))}"]
    page.get_by_role("button", name="Send").click()  # without a word
    answered(page)
    assert len(engine[0].submitted[-1].pictures) == 1


def test_a_large_picture_is_scaled_down(page: Page) -> None:
    choose(page, ("large.png", "image/png", picture(3, 2400, 900)))
    expect(page.locator("#shown img")).to_have_count(1)
    (url,) = sources(page, "#shown")
    head, _, data = url.partition(",")
    assert head == "data:image/jpeg;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as image:
        assert image.size == (1536, 576)


def test_what_is_no_picture_is_told(page: Page) -> None:
    choose(page, ("bad.png", "image/png", SMALL[:60]))
    expect(page.get_by_role("alert")).to_have_text("bad.png is no picture that this browser can read.")
    choose(page, *[(f"{n}.png", "image/png", picture(n, 8, 8)) for n in range(9)])
    expect(page.get_by_role("alert")).to_have_text("A message takes 8 pictures.")
    expect(page.locator("#shown img")).to_have_count(8)


def test_chats_with_pictures_go_to_files_and_back(page: Page, tmp_path: Path) -> None:
    choose(page, ("a.png", "image/png", SMALL))
    ask(page, "See")
    page.get_by_role("button", name="Chats").click()
    with page.expect_download() as kept:
        page.get_by_role("button", name="Export all").click()
    file = tmp_path / "chats.json"
    kept.value.save_as(file)
    turn = json.loads(file.read_text())["chats"][0]["turns"][0]
    url = f"data:image/png;base64,{base64_of(SMALL)}"
    assert turn == {"role": "user", "content": "See", "pictures": [url]}
    page.set_input_files("#file", file)
    expect(page.locator("article.user img")).to_have_count(1)
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "Hi"}]
    other = [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}, {"type": "text", "text": "Ho"}]
    file.write_text(json.dumps([{"role": "user", "content": parts}, {"role": "user", "content": other}]))
    page.set_input_files("#file", file)
    expect(page.locator("article.user .said").last).to_have_text("Ho")
    assert sources(page, "article.user") == [url]  # nothing is loaded from elsewhere


def test_a_model_that_reads_none(browser: Browser) -> None:
    with scripted(lambda *_: "") as (url, _), page_at(browser, url) as page:
        expect(page.locator("#model")).to_have_value("story")
        assert page.get_by_role("button", name="Add pictures").count() == 0
        hand_over(page, "paste", "#text", SMALL)
        expect(page.get_by_role("alert")).to_contain_text("--mmproj")
        assert sources(page, "#shown") == []


@needs_axe
@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_nothing_with_pictures(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    choose(page, ("a.png", "image/png", SMALL), ("b.png", "image/png", SMALL))
    expect(page.locator("#shown img")).to_have_count(2)
    found = {"chosen": audit(page)}
    ask(page, "What are they?")
    expect(page.locator("article.user img")).to_have_count(2)
    found["asked"] = audit(page)
    page.get_by_role("button", name="Edit").first.click()
    found["edit"] = audit(page)
    assert {state: some for state, some in found.items() if some} == {}
