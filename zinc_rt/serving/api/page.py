"""The chat page: static files of the package, sent with a policy that lets nothing else in."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.errors import Headers
from zinc_rt.serving.api.service import Service

_KINDS: Final = {
    "html": b"text/html; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "svg": b"image/svg+xml",
}
_NAMES: Final = (
    "index.html",
    "chat.css",
    "icon.svg",
    "api.js",
    "chat.js",
    "chats.js",
    "dom.js",
    "figures.js",
    "highlight.js",
    "markdown.js",
    "math.js",
    "pictures.js",
    "settings.js",
    "store.js",
    "turns.js",
    "versions.js",
)
FILES: Final = {f"/{name}".removesuffix("index.html"): (name, _KINDS[name.rpartition(".")[2]]) for name in _NAMES}
"""What is sent for a path: a file in `serving/page`, and its type."""

# A model's text cannot run scripts, load images or reach another host, whatever it holds. Pictures that the user shows
# stand in the page itself (data:).
POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
    b" base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final[Headers] = [
    (b"content-security-policy", POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
]


async def page(service: Service, call: Call) -> None:
    """One file of the page."""
    name, kind = FILES[call.path]
    await call.reply(_content(name), kind=kind, headers=_HEADERS)


@cache
def _content(name: str) -> bytes:
    return (files("zinc_rt.serving") / "page" / name).read_bytes()
