"""The chat page in a browser: what a person does with it. Needs Chromium of the distribution (`apt install
chromium`).
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.serving.api.fake import FakeClient
from tests.serving.browser import at_port, chromium
from zinc_rt.gguf import GGUFFile
from zinc_rt.loading import built_in_model
from zinc_rt.serving.api.app import App
from zinc_rt.serving.api.config import Config
from zinc_rt.serving.api.logs import make_logger
from zinc_rt.serving.api.served import ServedModel
from zinc_rt.serving.api.service import Service
from zinc_rt.serving.messages import Submit
from zinc_rt.text import Tokenizer

pytestmark = pytest.mark.slow

SAYS = """# A plan

First **read** the *code*, then `run` it:

1. clone
2. test
   - quick

```python
print("hello <b>world</b>")
```

See [docs](https://example.com/x), [bad](javascript:alert(1)), ![i](http://127.0.0.1:9/x.png)
<img src=x onerror=alert(1)>."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server whose model says SAYS, and goes on for long where it is asked to count."""
    with GGUFFile.open(built_in_model()) as file:
        model = ServedModel.read(file, Tokenizer.from_metadata(file.metadata), 4096, ["story"])
        plan, other = (model.tokenizer.encode(text, add_special=False) for text in (SAYS, "Once upon a time. "))

        def script(request: Submit) -> list[int]:
            asked = model.tokenizer.decode(request.prompt)
            return other * 10_000 if "count" in asked else plan

        client = FakeClient(script)
        app = App(Service(Config(), client, model, make_logger(io.StringIO()), None, None))
        with at_port(app) as url:
            yield url
        model.close()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """The page on a phone; what the browser complains of fails the test."""
    made = browser.new_page(viewport={"width": 360, "height": 640}, reduced_motion="reduce")
    complaints: list[str] = []
    made.on("console", lambda message: complaints.append(message.text) if "status of 4" not in message.text else None)
    made.on("pageerror", lambda error: complaints.append(str(error)))
    made.on("dialog", lambda dialog: complaints.append(dialog.message))
    made.goto(address)
    yield made
    made.close()
    assert complaints == []


def ask(page: Page, text: str) -> None:
    page.fill("#text", text)
    page.keyboard.press("Enter")


def test_an_answer_is_shown_as_text_and_nothing_else(page: Page) -> None:
    expect(page.locator("#model")).to_have_text("story")
    ask(page, "How do I begin? <script>alert(2)</script>")
    expect(page.locator(".facts:not([hidden])")).to_contain_text("tokens/s")
    said = page.locator("article.assistant .said")
    assert page.locator("article.user .said").inner_text() == "How do I begin? <script>alert(2)</script>"
    assert said.locator("h3").inner_text() == "A plan"
    assert said.locator("ol > li").count() == 2
    assert said.locator("ol ul > li").inner_text() == "quick"
    assert said.locator("pre code").inner_text() == 'print("hello <b>world</b>")'
    assert said.locator("img, script, b").count() == 0
    assert said.locator("a").evaluate_all("all => all.map(a => a.href)") == [
        "https://example.com/x", "http://127.0.0.1:9/x.png"
    ]  # fmt: skip
    assert "<img src=x onerror=alert(1)>" in said.inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_replay_retry_and_edit(page: Page) -> None:
    ask(page, "One")
    facts = page.locator("article.assistant .facts")
    expect(facts).to_contain_text("seed")
    page.get_by_role("button", name="Replay").click()
    expect(facts).to_contain_text("replay: equal")
    page.locator("summary").first.click()
    page.fill("[name=seed]", "18446744073709551615")
    page.get_by_role("button", name="Retry").click()
    expect(facts).to_contain_text("seed 18446744073709551615")
    assert page.locator("article").count() == 2
    page.get_by_role("button", name="Edit").click()
    page.locator("article textarea").fill("Two")
    page.locator("article").get_by_role("button", name="Send").click()
    expect(page.locator("article.user .said")).to_have_text("Two")
    expect(facts).to_contain_text("seed 18446744073709551615")
    page.get_by_role("button", name="New chat").click()
    assert page.locator("article").count() == 0


def test_escape_stops(page: Page) -> None:
    ask(page, "Please count")
    expect(page.locator("article.assistant .said")).to_contain_text("Once upon a time.")
    expect(page.locator("#stop")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#stop")).to_be_hidden()
    expect(page.locator("article.assistant .facts")).to_contain_text("stopped")
    assert page.locator("#spoken").inner_text().strip().startswith("O")  # a whole sentence, or the rest of the last
    expect(page.locator("#text")).to_be_focused()


def test_the_model_is_named_once_it_is_loaded(browser: Browser) -> None:
    with GGUFFile.open(built_in_model()) as file:
        model = ServedModel.read(file, Tokenizer.from_metadata(file.metadata), 4096, ["story"])
    service = Service(Config(), FakeClient(lambda _: []), model, make_logger(io.StringIO()), None, None)
    service.loading = "loading"
    with at_port(App(service)) as url:
        page = browser.new_page()
        with page.expect_response(lambda answer: answer.status == 503):
            page.goto(url)
        service.loading = None
        expect(page.locator("#model")).to_have_text("story")
        page.close()
    model.close()


def test_refusals_are_told(page: Page) -> None:
    page.locator("summary").first.click()
    page.fill("[name=temperature]", "-1")
    ask(page, "Hi")
    expect(page.get_by_role("alert")).to_contain_text("temperature")
