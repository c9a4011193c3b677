"""The chat page: static files of the package, sent with a policy that lets nothing else in."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.errors import Headers
from zinc_rt.serving.api.service import Service

FILES: Final = {
    "/": ("index.html", b"text/html; charset=utf-8"),
    "/chat.js": ("chat.js", b"text/javascript; charset=utf-8"),
    "/markdown.js": ("markdown.js", b"text/javascript; charset=utf-8"),
    "/math.js": ("math.js", b"text/javascript; charset=utf-8"),
    "/pictures.js": ("pictures.js", b"text/javascript; charset=utf-8"),
    "/store.js": ("store.js", b"text/javascript; charset=utf-8"),
    "/chat.css": ("chat.css", b"text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", b"image/svg+xml"),
}
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
