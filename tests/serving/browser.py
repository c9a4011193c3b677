"""A Chromium of the distribution, a server on a port for it, and the chat page in it."""

from __future__ import annotations

import dataclasses
import io
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

from tests.serving.api.fake import FakeClient
from zinc_rt.gguf import GGUFFile
from zinc_rt.llm.load import built_in_model
from zinc_rt.scheduler.messages import Submit
from zinc_rt.serving.api.app import App
from zinc_rt.serving.api.config import ServerConfig
from zinc_rt.serving.api.logs import make_logger
from zinc_rt.serving.api.served_model import ServedModel
from zinc_rt.serving.api.service import Service
from zinc_rt.text import Tokenizer

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
          "--disable-component-update", "--disable-sync"]  # fmt: skip


@contextmanager
def chromium(*flags: str) -> Iterator[Browser]:
    """A browser without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*_FLAGS, *flags])
        yield browser
        browser.close()


@contextmanager
def at_port(app: object) -> Iterator[str]:
    """The address of a server of an ASGI application, on a thread of its own."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, lifespan="off", log_level="warning")  # type: ignore[arg-type]
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(30)


@contextmanager
def scripted_service(text: Callable[[Submit, str], str], **model: Any) -> Iterator[tuple[Service, FakeClient]]:
    """A server whose model says what a function makes of a request and of its prompt's text. model: other fields."""
    with GGUFFile.open(built_in_model()) as file:
        served = ServedModel.read(file, Tokenizer.from_metadata(file.metadata), 4096, ["story"])
    served = dataclasses.replace(served, **model)
    encode, decode = served.tokenizer.encode, served.tokenizer.decode
    end = served.tokenizer.eos_id
    assert end is not None

    def script(request: Submit) -> list[int]:
        return [*encode(text(request, decode(request.prompt)), add_special=False), end]

    client = FakeClient(script, stops=frozenset({end}))
    yield Service(ServerConfig(), client, served, make_logger(io.StringIO()), None, None), client
    served.close()


@contextmanager
def scripted(text: Callable[[Submit, str], str], **model: Any) -> Iterator[tuple[str, FakeClient]]:
    """The same at an address."""
    with scripted_service(text, **model) as (service, client), at_port(App(service)) as url:
        yield url, client


@contextmanager
def page_at(browser: Browser, url: str, width: int = 390, height: int = 800, **more: Any) -> Iterator[Page]:
    """A page, on a phone if nothing else is said; what the browser complains of fails the test."""
    page = browser.new_page(
        viewport={"width": width, "height": height},
        is_mobile=width < 500,
        has_touch=width < 500,
        reduced_motion="reduce",
        permissions=["clipboard-read", "clipboard-write"],
        **more,
    )
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if "status of 4" not in message.text else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.goto(url)
    yield page
    page.close()
    assert complaints == []


def ask(page: Page, text: str) -> None:
    """Write a question and send it."""
    page.fill("#text", text)
    page.keyboard.press("Enter")


def answered(page: Page) -> None:
    """Wait for the end of the answer."""
    figures = page.locator("article.assistant").last.locator(".figures")
    figures.get_by_text("tokens/s").wait_for(state="attached")
    page.locator("#send").wait_for()
