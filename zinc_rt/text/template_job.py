"""What the process that renders chat templates does; see `zinc_rt.utils.isolated.worker`.

A request is {variable: value} and the template's source. The answer is {} and the rendered text, {"problem", "line"} or
{"over": "memory", "line"}. Texts are UTF-8, lone surrogates included.
"""

from __future__ import annotations

import codecs
import contextlib
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from zinc_rt.utils.isolated.worker import UTF8

Answer = tuple[dict[str, Any], bytes]


def load(settings: dict[str, Any]) -> Callable[[dict[str, Any], bytes], Answer]:
    """The function of a request. settings: {"max_characters"} of a rendered text."""
    sandbox, limit = _import_all(), int(settings["max_characters"])

    def answer(variables: dict[str, Any], source: bytes) -> Answer:
        try:
            return {}, sandbox.render(source.decode(*UTF8), variables, limit).encode(*UTF8)
        except MemoryError as error:
            return {"over": "memory", "line": sandbox.line_of(error.__traceback__)}, b""
        except Exception as error:  # a template can raise anything: it is a program
            problem, line = sandbox.describe(error)
            return {"problem": problem, "line": line}, b""

    return answer


def _import_all() -> ModuleType:
    """The sandbox, with everything loaded that Python and Jinja2 load when they first need it: later no file opens."""
    import html
    import pprint
    import textwrap

    import jinja2.debug

    from zinc_rt.text import sandbox

    for codec in ("ascii", "latin-1", "unicode_escape"):
        codecs.lookup(codec)
    time.localtime()  # the time zone
    with contextlib.suppress(jinja2.UndefinedError):
        sandbox.render("{% for a in b %}{{ '\\n' ~ a | tojson | trim }}{% endfor %}{{ b.c.d }}", {"b": [1]}, 100)
    del html, pprint, textwrap
    return sandbox
