"""The chat page in a browser: what a person does with it. Needs Chromium of the distribution (`apt install
chromium`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.serving.browser import answered, ask, at_port, chromium, page_at, scripted, scripted_service
from zinc_rt.scheduler.messages import Submit
from zinc_rt.serving.api.app import App

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


SHOWS = r"""| name | n \| m |
|:-----|----:|
| **a** | 1 |
| b    |

Where $x_1^2 \ge \frac{\alpha}{2}$, at $5 or $6, \(\unknown{x}\) and

$$
\sum_{i=1}^{n} \sqrt{i} = \begin{pmatrix} 1 & 0 \\ 0 & 1 \end{pmatrix}
$$

---
~~No~~, \*see\* https://example.com/a_b. And [here](https://example.org/).

```sh
zinc run "a"
```"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server whose model says SAYS, and goes on for long where it is asked to count."""

    def text(_: Submit, asked: str) -> str:
        return "Once upon a time. " * 2_000 if "count" in asked else SHOWS if "show" in asked else SAYS

    with scripted(text) as (url, _):
        yield url


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """The page on a phone."""
    with page_at(browser, address, 360, 640) as made:
        yield made


def test_an_answer_is_shown_as_text_and_nothing_else(page: Page) -> None:
    expect(page.locator("#model")).to_have_value("story")
    ask(page, "How do I begin? <script>alert(2)</script>")
    answered(page)
    said = page.locator("article.assistant .said")
    assert page.locator("article.user .said").inner_text() == "How do I begin? <script>alert(2)</script>"
    assert said.locator("h3").inner_text() == "A plan"
    assert said.locator("ol > li").count() == 2
    assert said.locator("ol ul > li").inner_text() == "quick"
    assert said.locator("pre code").inner_text() == 'print("hello <b>world</b>")'
    assert said.locator("img, script, b").count() == 0
    assert said.locator("a").evaluate_all("all => all.map(a => a.href)") == [
        "https://example.com/x",
        "http://127.0.0.1:9/x.png",
    ]
    assert "<img src=x onerror=alert(1)>" in said.inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_replay_retry_and_edit(page: Page) -> None:
    ask(page, "One")
    figures = page.locator("article.assistant .figures")
    expect(figures).to_contain_text("Seed")
    page.get_by_role("button", name="Replay", exact=True).click()
    expect(page.locator("article.assistant .facts")).to_contain_text("replay: equal")
    page.locator("#settings summary").click()
    page.fill("[name=seed]", "18446744073709551615")
    page.get_by_role("button", name="Retry").click()
    expect(figures).to_contain_text("18446744073709551615")
    assert page.locator("article").count() == 2
    page.get_by_role("button", name="Edit").click()
    page.locator("article textarea").fill("Two")
    page.locator("article").get_by_role("button", name="Send").click()
    expect(page.locator("article.user .said")).to_have_text("Two")
    expect(figures).to_contain_text("18446744073709551615")
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
    with scripted_service(lambda *_: "") as (service, _):
        service.loading = "loading"
        with at_port(App(service)) as url:
            page = browser.new_page()
            with page.expect_response(lambda answer: answer.status == 503):
                page.goto(url)
            service.loading = None
            expect(page.locator("#model")).to_have_value("story")
            page.close()


def test_refusals_are_told(page: Page) -> None:
    page.locator("summary").first.click()
    page.fill("[name=temperature]", "-1")
    ask(page, "Hi")
    expect(page.get_by_role("alert")).to_contain_text("temperature")


def listed(page: Page) -> list[str]:
    return page.locator("#list .title").all_inner_texts()


def test_tables_formulas_links_and_code(page: Page) -> None:
    ask(page, "Please show")
    answered(page)
    said = page.locator("article.assistant .said")
    assert said.locator("tr").evaluate_all("all => all.map(r => [...r.cells].map(c => c.textContent))") == [
        ["name", "n | m"],
        ["a", "1"],
        ["b", ""],
    ]
    assert said.locator("td.right").count() == 2
    assert said.locator("td strong").inner_text() == "a"
    assert said.locator("math").evaluate_all("all => all.map(m => m.getAttribute('display'))") == [None, "block"]
    assert said.locator("math msubsup, math mfrac, math munderover, math msqrt, math mtable").count() == 5
    assert said.locator("code.formula").inner_text() == r"\unknown{x}"
    assert "at $5 or $6" in said.inner_text()
    assert "*see*" in said.inner_text()
    assert said.locator("hr, del").count() == 2
    links = said.locator("a")
    assert links.evaluate_all("all => all.map(a => a.href)") == ["https://example.com/a_b", "https://example.org/"]
    assert links.evaluate_all("all => all.every(a => a.target === '_blank' && a.rel.includes('noopener'))")
    assert "here (example.org)" in said.inner_text()
    said.get_by_role("button", name="Copy code").click()
    assert page.evaluate("navigator.clipboard.readText()") == 'zinc run "a"'
    assert said.locator(".code button").inner_text() == "Copied"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_reload_loses_nothing(page: Page) -> None:
    page.locator("summary").first.click()
    page.fill("#key", "secret-key")
    page.fill("[name=system]", "Be brief.")
    page.locator("summary").first.click()
    ask(page, "First <b>question</b>")
    answered(page)
    page.get_by_role("button", name="New chat").click()
    ask(page, "Please count")
    expect(page.locator("article.assistant .said")).to_contain_text("Once upon a time.")
    page.reload()
    assert page.locator("article.user .said").inner_text() == "Please count"
    expect(page.locator("article.assistant .said")).to_contain_text("Once upon a time.")
    expect(page.locator("article.assistant .facts")).to_have_text("broken off")
    assert page.locator("article.assistant h2").first.inner_text() == "story"
    assert page.locator("[name=system]").input_value() == "Be brief."
    page.get_by_role("button", name="Chats").click()
    assert listed(page) == ["Please count", "First <b>question</b>"]
    page.get_by_role("button", name="First <b>question</b>").click()
    answered(page)
    page.get_by_role("button", name="Replay", exact=True).click()
    expect(page.locator("article.assistant .facts")).to_contain_text("replay: equal, the same seed gave the same text")
    assert "secret-key" not in page.evaluate("JSON.stringify(localStorage)")


def test_chats_are_renamed_deleted_and_brought_back(page: Page) -> None:
    ask(page, "One")
    answered(page)
    page.get_by_role("button", name="Chats").click()
    page.get_by_role("button", name="Rename").click()
    page.get_by_label("Title").fill("A name")
    page.keyboard.press("Enter")
    assert listed(page) == ["A name"]
    page.get_by_role("button", name="Delete").click()
    assert listed(page) == []
    assert page.locator("article").count() == 0
    page.get_by_role("button", name="Undo").click()
    assert page.locator("article").count() == 2
    page.reload()
    assert listed(page) == ["A name"]
    page.get_by_role("button", name="Chats").click()
    expect(page.locator("#chats")).to_be_visible()
    page.mouse.click(340, 300)  # beside the list
    expect(page.locator("#chats")).to_be_hidden()


def test_chats_go_to_files_and_back(page: Page, tmp_path: Path) -> None:
    ask(page, "One")
    answered(page)
    said = page.locator("article.assistant .said").inner_text()
    page.get_by_role("button", name="Chats").click()
    with page.expect_download() as markdown:
        page.get_by_role("button", name="Markdown").click()
    assert markdown.value.suggested_filename == "One.md"
    assert SAYS in markdown.value.path().read_text(encoding="utf-8")
    with page.expect_download() as kept:
        page.get_by_role("button", name="Export all").click()
    file = tmp_path / "chats.json"
    kept.value.save_as(file)
    assert json.loads(file.read_text())["chats"][0]["turns"][0] == {"role": "user", "content": "One"}
    page.get_by_role("button", name="Delete").click()
    page.set_input_files("#file", file)
    expect(page.locator("article")).to_have_count(2)
    assert page.locator("article.assistant .said").inner_text() == said
    file.write_text('{"chats": [{"turns": [{"role": "system"}]}]}')
    page.set_input_files("#file", file)
    expect(page.get_by_role("alert")).to_have_text(
        "chats.json: the file holds no chats; give one that this page exported"
    )
    assert page.locator("article").count() == 2


def test_a_full_storage_is_told(page: Page) -> None:
    page.evaluate("() => { Storage.prototype.setItem = () => { throw new DOMException('', 'QuotaExceededError'); }; }")
    ask(page, "One")
    answered(page)
    expect(page.get_by_role("alert")).to_contain_text("storage is off or full")


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light"), (1280, "dark")])
def test_it_fits_light_and_dark_phones_and_desks(page: Page, width: int, scheme: str) -> None:
    page.set_viewport_size({"width": width, "height": 640})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    ask(page, "Please show")
    answered(page)
    assert page.locator("#chats").is_visible() == (width > 1000)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    lightness = page.evaluate(
        "[document.body, ...document.querySelectorAll('.said p, .figures, .title, td, pre')].map(e => "
        "getComputedStyle(e).color.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0) / 3)"
    )
    assert all(value > 128 if scheme == "dark" else value < 128 for value in lightness)
