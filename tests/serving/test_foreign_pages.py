"""What a web page of another origin can do to a server without keys, in a browser: nothing. Needs Chromium."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.serving.api.fake import FakeClient
from tests.serving.browser import at_port, chromium
from zinc_rt.gguf import GGUFFile
from zinc_rt.llm.load import built_in_model
from zinc_rt.serving.api.app import App
from zinc_rt.serving.api.call import Receive, Scope, Send
from zinc_rt.serving.api.config import ServerConfig
from zinc_rt.serving.api.logs import make_logger
from zinc_rt.serving.api.served_model import ServedModel
from zinc_rt.serving.api.service import Service
from zinc_rt.serving.api.web import WebRule
from zinc_rt.serving.route.backends import RouteBackends
from zinc_rt.serving.route.router import Router, make_client
from zinc_rt.text import Tokenizer

pytestmark = pytest.mark.slow

ATTACK = """async (base) => {
  const chat = JSON.stringify({messages: [{role: "user", content: "Hi"}], max_tokens: 3});
  const read = [];
  const ask = async (path, init) => {
    try {
      const answer = await fetch(base + path, init);
      const text = await answer.text();
      if (answer.ok && text) read.push(path + " " + text.slice(0, 99));
    } catch (error) { /* the browser keeps it from the page */ }
  };
  for (const mode of ["cors", "no-cors", "same-origin"])
    for (const headers of [{}, {"content-type": "text/plain"}, {"content-type": "application/json"},
                           {"content-type": "text/plain", "authorization": "Bearer x"}])
      await ask("/v1/chat/completions", {method: "POST", body: chat, mode, headers});
  for (const path of ["/v1/models", "/metrics", "/health/progress", "/chat.js"])
    for (const mode of ["cors", "no-cors", "same-origin"]) await ask(path, {mode});
  navigator.sendBeacon(base + "/v1/chat/completions", new Blob([chat], {type: "text/plain"}));
  for (const enctype of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]) {
    const frame = document.createElement("iframe");
    frame.name = "target-" + enctype;
    document.body.append(frame);
    const form = document.createElement("form");
    Object.assign(form, {method: "POST", action: base + "/v1/chat/completions", target: frame.name, enctype});
    const field = document.createElement("input");
    Object.assign(field, {name: chat.slice(0, -1) + ', "x": "', value: '"}'});
    form.append(field);
    document.body.append(form);
    const loaded = new Promise((done) => frame.addEventListener("load", done, {once: true}));
    form.submit();
    await loaded;
    try { if (frame.contentDocument.body.innerText.includes("choices")) read.push("frame"); } catch { }
  }
  return read;
}"""


class Bait:
    """A server over an engine that only notes what it is asked."""

    def __init__(self, model: ServedModel, web: WebRule) -> None:
        self.client = FakeClient(lambda _: [5] * 9)
        self._app = App(Service(ServerConfig(web=web), self.client, model, make_logger(io.StringIO()), None, None))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The server; /attack is what a page had loaded before its name got the server's address."""
        await (foreign if scope["path"] == "/attack" else self._app)(scope, receive, send)


async def foreign(scope: Scope, receive: Receive, send: Send) -> None:
    """An empty page."""
    headers = [(b"content-type", b"text/html"), (b"content-length", b"20")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"<!doctype html><body", "more_body": False})


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium("--host-resolver-rules=MAP evil.example 127.0.0.1") as made:
        yield made


@pytest.fixture(scope="module")
def model() -> Iterator[ServedModel]:
    with GGUFFile.open(built_in_model()) as file:
        made = ServedModel.read(file, Tokenizer.from_metadata(file.metadata), 4096, ["story"])
        yield made
        made.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    made = browser.new_page()
    yield made
    made.close()


def test_a_page_on_another_port_is_not_answered(page: Page, model: ServedModel) -> None:
    bait = Bait(model, WebRule())
    with at_port(bait) as server, at_port(foreign) as other:
        for origin in (other, other.replace("127.0.0.1", "localhost"), other.replace("127.0.0.1", "evil.example")):
            page.goto(origin)
            assert page.evaluate(ATTACK, server) == []
        assert bait.client.submitted == []
        page.goto(server)  # its own page
        page.fill("#text", "Hi")
        page.keyboard.press("Enter")
        page.wait_for_selector(".facts:not([hidden])")
        assert len(bait.client.submitted) == 1


def test_a_page_that_gives_its_name_the_servers_address_is_not_answered(page: Page, model: ServedModel) -> None:
    bait, open_one = Bait(model, WebRule()), Bait(model, WebRule.of("127.0.0.1", ["evil.example"], []))
    with at_port(open_one) as server:
        assert attack_by_name(page, server)
        assert open_one.client.submitted
    with at_port(bait) as server:
        assert attack_by_name(page, server) == []
        assert bait.client.submitted == []


def attack_by_name(page: Page, server: str) -> list[str]:
    """What a page of evil.example reads at the server's port."""
    name = server.replace("127.0.0.1", "evil.example")
    page.goto(f"{name}/attack")
    found: list[str] = page.evaluate(ATTACK, name)
    return found


def test_a_router_has_the_same_rule_and_serves_the_page(page: Page, model: ServedModel) -> None:
    bait, log = Bait(model, WebRule()), make_logger(io.StringIO())
    with at_port(bait) as server, at_port(foreign) as other:
        http = make_client()
        router = Router(RouteBackends([server], http, log), http, log)
        router.backends.all[0].wrong = None
        with at_port(router) as front:
            page.goto(other)
            assert page.evaluate(ATTACK, front) == []
            assert bait.client.submitted == []
            page.goto(front)
            page.fill("#text", "Hi")
            page.keyboard.press("Enter")
            page.wait_for_selector(".facts:not([hidden])")
            assert len(bait.client.submitted) == 1


def test_a_page_that_is_allowed_reads_answers(page: Page, model: ServedModel) -> None:
    with at_port(foreign) as other:
        bait = Bait(model, WebRule.of("127.0.0.1", [], [other]))
        with at_port(bait) as server:
            page.goto(other)
            read = page.evaluate(ATTACK, server)
            assert any(line.startswith("/v1/chat/completions") for line in read)
            assert any(line.startswith("/v1/models") for line in read)
            assert bait.client.submitted
