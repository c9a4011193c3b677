"""Chats on the page, in a browser: search, versions, models, settings, looks, code, going on, figures.

Needs Chromium of the distribution, and for the audit axe-core (`npm install --no-save axe-core`).
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.serving.api.fake import FakeClient
from tests.serving.browser import answered, ask, at_port, chromium, page_at, scripted, scripted_service
from tests.serving.command import started
from tests.serving.test_page_browser import SHOWS
from zinc_rt.llm.load import built_in_model
from zinc_rt.scheduler.messages import EngineInfo, Submit
from zinc_rt.serving.api.app import App
from zinc_rt.serving.api.fitting import FittedModel
from zinc_rt.serving.api.metrics import Metrics
from zinc_rt.serving.api.model_table import Admit, ModelTable
from zinc_rt.serving.api.served_adapters import ServedAdapter, ServedAdapters
from zinc_rt.serving.api.service import Service
from zinc_rt.serving.wire import Planned

pytestmark = pytest.mark.slow

AXE = next(
    (
        path
        for folder in Path(__file__).parents
        if (path := folder / "node_modules" / "axe-core" / "axe.min.js").is_file()
    ),
    None,
)
needs_axe = pytest.mark.skipif(AXE is None, reason="axe-core is not there: npm install --no-save axe-core")
CODE = '''```python
# a "note"
def f(x: int) -> str:
    return f"{x} <b>" + """if
1"""  # 0x1f
```

```rust
fn f<'a>(x: &'a str) -> char { 'x' } /* fn
```

```unknown
if 1
```'''

FAR = " ".join(map(str, range(4000)))


def text(request: Submit, asked: str) -> str:
    """What the model says."""
    last = asked.rpartition("user")[2]
    if "code" in last:
        return CODE
    if "show" in last:
        return SHOWS
    if "far" in last:
        return FAR
    if "count" in last:
        return " ".join(map(str, range(400)))
    if "system" in last:
        return "A pirate." if "pirate" in asked else "Nobody."
    if "adapter" in last:
        return ", ".join(f"{name} at {scale}" for name, scale in request.adapters) or "None."
    return f"I rolled {request.seed}."


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, FakeClient]]:
    """A server with an adapter, and its engine."""
    adapters = ServedAdapters([ServedAdapter(0, "style", "style.gguf", 0.0, "", "")])
    with scripted(text, adapters=adapters) as made:
        yield made


@pytest.fixture
def page(browser: Browser, server: tuple[str, FakeClient]) -> Iterator[Page]:
    with page_at(browser, server[0]) as made:
        yield made


def said(page: Page) -> list[str]:
    return page.locator("article.assistant .said").all_inner_texts()


def press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).last.click()


def setting(page: Page, name: str, value: str) -> None:
    """Unfold the settings, fill a field, fold them."""
    page.locator("#settings summary").click()
    page.locator(f"[name={name}]").fill(value)
    page.locator("#settings summary").click()


def listed(page: Page) -> list[str]:
    return page.locator("#list .title").all_inner_texts()


def test_search_finds_titles_and_texts_and_leads_to_them(page: Page) -> None:
    ask(page, "Please show tables")
    answered(page)
    press(page, "Retry")
    answered(page)
    press(page, "New chat")
    ask(page, "Roll a die")
    answered(page)
    page.get_by_role("button", name="Chats").click()
    field = page.get_by_role("searchbox", name="Search the chats")
    expect(field).to_be_focused()
    page.keyboard.type("ROLLED")
    assert listed(page) == ["Roll a die"]
    assert page.locator("#list mark").all_inner_texts() == ["rolled"]
    expect(page.get_by_role("status")).to_have_text("1 of 2 chats")
    field.fill("nowhere to be found")
    expect(page.get_by_role("status")).to_have_text("No chat has these words.")
    field.fill("please EXAMPLE.org")
    assert listed(page) == ["Please show tables"]
    page.keyboard.press("Enter")
    expect(page.locator("#chats")).to_be_hidden()
    expect(page.locator("article.user .said")).to_have_text("Please show tables")
    page.get_by_role("button", name="Chats").click()
    field.fill("")
    assert len(listed(page)) == 2
    page.keyboard.press("Escape")
    expect(page.locator("#toggle")).to_be_focused()


def test_versions_stay_with_what_followed_them(page: Page, tmp_path: Path) -> None:
    ask(page, "Roll")
    answered(page)
    (first,) = said(page)
    ask(page, "Roll again")
    answered(page)
    both = said(page)
    page.get_by_role("button", name="Retry").first.click()
    answered(page)
    (second,) = said(page)
    assert first != second
    versions = page.get_by_role("group", name="Versions")
    expect(versions).to_contain_text("2/2")
    press(page, "Previous version")
    assert said(page) == both
    expect(page.get_by_role("button", name="Previous version")).to_be_focused()
    expect(page.locator("#spoken")).to_have_text("Version 1 of 2")
    page.reload()
    assert said(page) == both
    press(page, "Next version")
    assert said(page) == [second]
    page.get_by_role("button", name="Edit").click()
    page.locator("article textarea").fill("Roll differently")
    page.locator("article").get_by_role("button", name="Send").click()
    answered(page)
    expect(versions).to_contain_text("2/2")  # one: the answer has none by now
    expect(page.locator("article.user .said")).to_have_text("Roll differently")
    third = said(page)
    page.get_by_role("button", name="Chats").click()
    with page.expect_download() as kept:
        press(page, "Export JSON")
    with page.expect_download() as markdown:
        press(page, "Export Markdown")
    assert "version 2 of 2" in markdown.value.path().read_text(encoding="utf-8")
    press(page, "Delete")
    page.set_input_files("#file", kept.value.path())
    assert said(page) == third
    page.get_by_role("button", name="Next version").first.click()  # from the last to the first
    assert said(page) == [second]
    page.get_by_role("button", name="Next version").last.click()
    assert said(page) == both
    press(page, "Replay")
    expect(page.locator("article.assistant .facts").last).to_contain_text("replay: equal")


def test_a_failed_retry_and_a_bad_file_lose_nothing(page: Page, tmp_path: Path) -> None:
    ask(page, "Roll")
    answered(page)
    before = said(page)
    setting(page, "temperature", "-1")
    press(page, "Retry")
    expect(page.get_by_role("alert")).to_contain_text("temperature")
    assert said(page) == before
    assert page.get_by_role("group", name="Versions").count() == 0
    turns = [
        {"role": "user", "content": "Old", "versions": [["bad"], None, 5, [{"role": "tool"}]]},
        {
            "role": "assistant",
            "content": "Kept",
            "facts": "7 tokens",
            "seed": '1,"n":9',
            "tokens": "1\n2",
            "event": "a b",
        },
        {"role": "user", "content": "Two", "versions": [None, [{"role": "user", "content": "Other"}]]},
    ]
    file = tmp_path / "chats.json"
    file.write_text(json.dumps({"chats": [{"turns": turns}]}))
    page.set_input_files("#file", file)
    assert said(page) == ["Kept"]
    assert page.locator("article.assistant .facts").inner_text() == "7 tokens"
    assert page.get_by_role("button", name="Replay").count() == 0
    press(page, "Next version")
    expect(page.locator("article.user .said").last).to_have_text("Other")
    kept = page.evaluate("JSON.parse(localStorage.getItem('zinc.chat.' + location.hash.slice(1)))")
    assert kept["turns"][1] == {"role": "assistant", "content": "Kept", "facts": "7 tokens"}


class Several:
    """Three models, of which none is loaded; loads wait for `gate`."""

    def __init__(self) -> None:
        self.gate = threading.Event()

    def open(self, front: Service, fitted: FittedModel, admit: Admit, metrics: Metrics) -> Service:
        gate, encode = self.gate, front.model.tokenizer.encode

        class Loading(FakeClient):
            async def start(self) -> EngineInfo:
                await admit(Planned(100, None, False))
                while not gate.is_set():
                    await asyncio.sleep(0.01)
                return await super().start()

        client: Any = Loading(lambda _: encode(f"I am {fitted.names[0]}.", add_special=False), n_ctx=4096)
        model = dataclasses.replace(front.model, names=fitted.names, pool=ThreadPoolExecutor(1))
        return Service(front.config, client, model, front.log, front.tenants, metrics=metrics, front=front)


def test_models_are_chosen_for_each_chat_and_loads_are_told(browser: Browser) -> None:
    several = Several()
    with scripted_service(lambda *_: "") as (front, _):
        names = [("alpha", "first"), ("beta",), ("gamma",)]
        ModelTable(front, map(FittedModel, names), partial(several.open, front))
        with at_port(App(front)) as url, page_at(browser, url) as page:
            picker = page.get_by_role("combobox", name="Model")
            expect(picker).to_have_value("alpha")
            assert picker.locator("option").all_inner_texts() == [f"{n[0]}, not loaded" for n in names]
            picker.select_option("beta")
            ask(page, "Who?")
            expect(page.locator(".busy .facts")).to_have_text("beta is being loaded …", timeout=10_000)
            expect(page.locator("#spoken")).to_have_text("The model is being loaded.")
            several.gate.set()
            answered(page)
            assert said(page) == ["I am beta."]
            assert page.locator("article.assistant h2").inner_text() == "beta"
            expect(picker.locator("option").nth(1)).to_have_text("beta")
            press(page, "New chat")
            expect(picker).to_have_value("beta")  # used last
            picker.select_option("gamma")
            ask(page, "And you?")
            answered(page)
            assert said(page) == ["I am gamma."]
            page.get_by_role("button", name="Chats").click()
            page.get_by_role("button", name="Who?").click()
            expect(picker).to_have_value("beta")
            press(page, "Retry")
            answered(page)
            assert said(page) == ["I am beta."]
            page.reload()
            expect(picker).to_have_value("beta")
            press(page, "Replay")
            expect(page.locator("article.assistant .facts")).to_contain_text("equal")


def test_adapters_are_chosen_as_models(page: Page, server: tuple[str, FakeClient]) -> None:
    picker = page.get_by_role("combobox", name="Model")
    expect(picker.locator("option")).to_have_text(["story", "style, adapter of story"])
    picker.select_option("style")
    ask(page, "Which adapter?")
    answered(page)
    assert said(page) == ["style at 1.0"]
    assert page.locator("article.assistant h2").inner_text() == "style"
    setting(page, "scale", "0.5")
    press(page, "Retry")
    answered(page)
    assert said(page) == ["style at 0.5"]
    assert page.locator("article.assistant h2").inner_text() == "style \u00d7 0.5"
    press(page, "Replay")
    expect(page.locator("article.assistant .facts")).to_contain_text("equal")
    page.reload()
    expect(page.locator("[name=scale]")).to_have_value("0.5")
    picker.select_option("story")
    page.locator("#settings summary").click()
    expect(page.locator("[name=scale]")).to_be_hidden()
    press(page, "Retry")
    answered(page)
    assert said(page) == ["None."]


def test_each_chat_has_settings_of_its_own(page: Page, server: tuple[str, FakeClient]) -> None:
    setting(page, "system", "You are a pirate.")
    setting(page, "temperature", "0.25")
    ask(page, "Which system?")
    answered(page)
    press(page, "New chat")
    assert page.locator("[name=system]").input_value() == "You are a pirate."
    setting(page, "system", "")
    setting(page, "temperature", "1.5")
    ask(page, "Which system now?")
    answered(page)
    assert said(page) == ["Nobody."]
    assert server[1].submitted[-1].params.temperature == 1.5
    page.get_by_role("button", name="Chats").click()
    page.get_by_role("button", name="Which system?").click()
    assert page.locator("[name=system]").input_value() == "You are a pirate."
    press(page, "Retry")
    answered(page)
    assert said(page) == ["A pirate."]
    assert server[1].submitted[-1].params.temperature == 0.25
    press(page, "New chat")
    assert page.locator("[name=temperature]").input_value() == "0.25"  # used last


def test_light_and_dark_by_hand(page: Page) -> None:
    def back() -> int:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return int(re.findall(r"\d+", colour)[0])

    page.emulate_media(color_scheme="light")
    assert back() > 200
    page.locator("#settings summary").click()
    page.get_by_label("Colours").select_option("dark")
    assert back() < 50
    page.reload()
    assert back() < 50
    page.locator("#settings summary").click()
    page.get_by_label("Colours").select_option("system")
    assert back() > 200
    page.emulate_media(color_scheme="dark")
    assert back() < 50
    page.get_by_label("Colours").select_option("light")
    assert back() > 200


def test_code_has_colours(page: Page) -> None:
    ask(page, "Some code")
    answered(page)
    blocks = page.locator("pre code")
    kinds = "all => all.map(one => [one.className, one.textContent])"
    assert blocks.nth(0).locator("span").evaluate_all(kinds) == [
        ["comment", '# a "note"'],
        ["word", "def"],
        ["word", "return"],
        ["string", '"{x} <b>"'],
        ["string", '"""if\n1"""'],
        ["comment", "# 0x1f"],
    ]
    assert blocks.nth(1).locator("span").evaluate_all(kinds) == [
        ["word", "fn"],
        ["word", "str"],
        ["word", "char"],
        ["string", "'x'"],
        ["comment", "/* fn"],
    ]
    assert blocks.nth(2).locator("span").count() == 0
    assert blocks.all_inner_texts() == re.findall(r"```\w+\n(.*?)\n```", CODE, re.DOTALL)
    page.get_by_role("button", name="Copy code").first.click()
    assert page.evaluate("navigator.clipboard.readText()") == blocks.first.inner_text()


def test_what_stands_is_kept_while_more_comes(page: Page) -> None:
    found = page.evaluate(
        """async (lines) => {
            const { render } = await import("./markdown.js"), { settle } = await import("./dom.js");
            const made = document.createElement("div"), source = "# A\\n\\n```python\\n";
            settle(made, render(source + "x = 1\\n"));
            const first = made.querySelector("span.number"), copy = made.querySelector("button");
            const whole = source + "x = 1\\n" + 'y = "a" # b\\n'.repeat(lines) + "```\\n\\n*end*";
            const began = performance.now();
            settle(made, render(whole));
            const took = performance.now() - began;
            const same = first === made.querySelector("span.number") && copy === made.querySelector("button");
            const fresh = document.createElement("div");
            fresh.append(render(whole));
            return [same, took, fresh.isEqualNode(made)];
        }""",
        2000,
    )
    assert found[0]
    assert found[2]
    assert found[1] < 1000, "milliseconds for 2,000 lines of code"


def test_an_answer_goes_on_as_if_it_had_not_been_stopped(page: Page, server: tuple[str, FakeClient]) -> None:
    setting(page, "max_tokens", "300")
    ask(page, "Please count")
    answered(page)
    expect(page.locator("article.assistant .facts")).to_have_text("cut at the limit")
    (cut,) = said(page)
    page.reload()
    press(page, "Go on")
    expect(page.locator("article.assistant .facts")).to_have_text("cut at the limit")
    expect(page.locator("article.assistant .figures")).to_contain_text("of them from before")
    (longer,) = said(page)
    assert longer.startswith(cut)
    assert len(longer) > len(cut)
    assert len(server[1].submitted[-1].resume) == 300
    setting(page, "max_tokens", "3000")
    press(page, "Go on")
    answered(page)
    expect(page.locator("article.assistant .facts")).to_be_hidden()
    assert said(page) == [" ".join(map(str, range(400)))]
    assert page.get_by_role("button", name="Go on").count() == 0
    press(page, "Replay")
    expect(page.locator("article.assistant .facts")).to_contain_text("equal")
    assert page.get_by_role("group", name="Versions").count() == 0


def test_stops_and_reloads_do_not_change_an_answer(page: Page, server: tuple[str, FakeClient]) -> None:
    shown, facts = page.locator("article.assistant .said"), page.locator("article.assistant .facts")
    ask(page, "Please count far")
    expect(shown).to_contain_text("0 1 2 3")
    page.keyboard.press("Escape")
    expect(facts).to_have_text("stopped")
    stopped = said(page)[0]
    assert FAR.startswith(stopped)
    press(page, "Go on")
    expect(shown).not_to_have_text(stopped)
    page.reload()
    expect(facts).to_have_text("broken off")
    broken = said(page)[0]
    assert broken.startswith(stopped)
    assert len(broken) < len(FAR)
    press(page, "Go on")
    answered(page)
    assert said(page) == [FAR]
    assert 0 < len(server[1].submitted[-1].resume) < len(server[1].script(server[1].submitted[-1]))


def test_going_on_elsewhere_keeps_both_texts(page: Page) -> None:
    setting(page, "max_tokens", "300")
    ask(page, "Please count")
    answered(page)
    page.evaluate(
        """() => {
            const name = "zinc.chat." + location.hash.slice(1), chat = JSON.parse(localStorage.getItem(name));
            Object.assign(chat.turns[1], { content: "Another text", event: undefined, tokens: undefined });
            localStorage.setItem(name, JSON.stringify(chat));
        }"""
    )
    page.reload()
    press(page, "Go on")
    expect(page.get_by_role("alert")).to_contain_text("another text")
    press(page, "Previous version")
    assert said(page) == ["Another text"]


def test_a_real_answer_goes_on_to_the_same_bytes(browser: Browser, tmp_path: Path) -> None:
    question = {"messages": [{"role": "user", "content": "Tell me of a fox."}], "seed": 11, "max_tokens": 120}
    with started(tmp_path, "-m", built_in_model()) as server, page_at(browser, server.url) as page:
        whole = httpx.post(f"{server.url}/v1/chat/completions", json=question, timeout=120).json()
        setting(page, "seed", "11")
        setting(page, "max_tokens", "40")
        ask(page, "Tell me of a fox.")
        answered(page)
        setting(page, "max_tokens", "80")
        press(page, "Go on")
        expect(page.locator("article.assistant .figures")).to_contain_text("40 of them from before", timeout=60_000)
        answered(page)
        kept = page.evaluate("JSON.parse(localStorage.getItem('zinc.chat.' + location.hash.slice(1)))")
        assert kept["turns"][1]["content"] == whole["choices"][0]["message"]["content"]
        assert kept["turns"][1]["figures"]["made"] == whole["usage"]["completion_tokens"]


def test_tokens_times_and_probabilities_on_demand(page: Page) -> None:
    page.locator("#settings summary").click()
    page.get_by_label("Probabilities of tokens").check()
    page.locator("#settings summary").click()
    ask(page, "Roll")
    answered(page)
    figures = page.locator("article.assistant .figures")
    expect(figures.locator("dl")).to_be_hidden()
    figures.get_by_text("Tokens and time").click()
    assert figures.locator("dt").all_inner_texts() == [
        "Prompt", "Answer", "First token", "Whole answer", "Speed", "Seed"
    ]  # fmt: skip
    assert re.fullmatch(r"\d+ tokens, \d+ of them cached", figures.locator("dd").first.inner_text())
    assert figures.locator(".odds p").first.inner_text() == said(page)[0]
    expect(figures.locator(".odds li").first).to_contain_text("61 %")  # exp(-0.5)
    press(page, "Replay")
    expect(page.locator("article.assistant .facts")).to_contain_text("equal")
    expect(figures.locator("dl")).to_be_visible()  # it stays unfolded
    press(page, "What Replay shows")
    expect(page.get_by_role("dialog", name="The same bytes again")).to_contain_text("seed")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.get_by_role("button", name="What Replay shows")).to_be_focused()


def test_everything_is_reached_by_keys(page: Page) -> None:
    ask(page, "Some code")
    answered(page)
    expect(page.locator("#text")).to_be_focused()
    reached = []
    for _ in range(40):
        page.keyboard.press("Shift+Tab")
        name = page.evaluate(
            "(e => e.ariaLabel || e.labels?.[0]?.textContent.trim() || e.textContent.trim().slice(0, 20))"
            "(document.activeElement)"
        )
        reached.append(name)
        if name == "Chats":
            break
    wanted = ["What Replay shows", "Replay", "Retry", "Copy", "Tokens and time", "Copy code", "Code, python", "Edit"]
    wanted += ["Conversation", "Settings", "New chat", "Model", "Chats"]
    assert [name for name in reached if name in wanted and reached.count(name) == 1] == [
        name for name in wanted if reached.count(name) == 1
    ]
    assert set(wanted) <= set(reached)


def audit(page: Page) -> list[str]:
    """What axe finds."""
    assert AXE is not None
    if not page.evaluate("!!window.axe"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate(
        "async () => (await axe.run(document, { resultTypes: ['violations'] })).violations"
        ".map((one) => one.id + ': ' + one.nodes.map((node) => node.html.slice(0, 160)).join(' | '))"
    )
    return list(found)


@needs_axe
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing_while_a_model_is_loaded(browser: Browser, width: int) -> None:
    several = Several()
    with scripted_service(lambda *_: "") as (front, _):
        ModelTable(front, map(FittedModel, [("alpha",), ("beta",)]), partial(several.open, front))
        with at_port(App(front)) as url, page_at(browser, url, width, 800) as page:
            page.get_by_role("combobox", name="Model").select_option("beta")
            ask(page, "Who?")
            expect(page.locator(".busy .facts")).to_have_text("beta is being loaded …", timeout=10_000)
            assert audit(page) == []
            several.gate.set()
            answered(page)


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing(page: Page, width: int, scheme: str) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    found = {"empty": audit(page)}
    for question in ("Please show", "Some code", "Roll"):
        ask(page, question)
        answered(page)
    press(page, "Retry")
    answered(page)
    found["answers"] = audit(page)
    page.locator("article.assistant .figures summary").first.click()
    found["figures"] = audit(page)
    press(page, "What Replay shows")
    found["explained"] = audit(page)
    page.keyboard.press("Escape")
    page.locator("#settings summary").click()
    page.get_by_role("combobox", name="Model").select_option("style")
    expect(page.locator("[name=scale]")).to_be_visible()
    found["settings"] = audit(page)
    page.locator("#settings summary").click()
    page.get_by_role("button", name="Edit").first.click()
    found["edit"] = audit(page)
    if width < 1000:
        page.get_by_role("button", name="Chats").click()
    page.get_by_role("searchbox").fill("roll")
    found["list"] = audit(page)
    press(page, "Rename")
    found["rename"] = audit(page)
    page.keyboard.press("Escape")
    press(page, "Delete")
    found["deleted"] = audit(page)
    ask(page, "Please count far")
    expect(page.locator(".busy .said")).to_contain_text("0 1 2 3")
    found["busy"] = audit(page)
    assert {state: some for state, some in found.items() if some} == {}
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
