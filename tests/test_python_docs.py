"""The examples of docs/use/python.md, programs of `examples/` among them, print what the page says.

`python -m tests.test_python_docs` writes what they print into the page.
"""

from __future__ import annotations

import contextlib
import io
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import zinc_rt
from tests.text.templates import QWEN3
from zinc_rt.llm.chat import ChatFormat
from zinc_rt.text import ChatTemplate

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/use/python.md"
BLOCK = re.compile(r"```(?P<kind>python|sh)\n(?P<code>.*?)```\n(?:\n```text\n(?P<printed>.*?)```\n)?", re.DOTALL)
TRAINED = "Qwen3-4B-Q4_K_M.gguf"


def with_tools(load: Callable[..., zinc_rt.Model]) -> Callable[..., zinc_rt.Model]:
    """`load` with the model in the package, under a template that takes tools, for the page's model that takes them."""

    def loaded(path: str | None = None, **options: Any) -> zinc_rt.Model:
        if path != TRAINED:
            return load(path, **options)
        model = load()
        template = ChatTemplate({"default": QWEN3}, {}, None)
        vars(model).update(chat_template=template, chat_format=ChatFormat(model.tokenizer, template))
        return model

    return loaded


def outputs(text: str) -> list[str]:
    """What each block prints, run in order as one program."""
    names: dict[str, Any] = {"__name__": "page"}
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZINC_RT_TIER", "cpu")
        patch.setattr("sys.argv", ["example"])
        patch.setattr(zinc_rt, "load", with_tools(zinc_rt.load))
        for block in BLOCK.finditer(text):
            with contextlib.redirect_stdout(io.StringIO()) as out:
                if block["kind"] == "python":
                    exec(compile(block["code"], str(PAGE), "exec", dont_inherit=True), names)
                else:
                    runpy.run_path(str(ROOT / block["code"].removeprefix("python ").strip()), run_name="__main__")
            found.append(out.getvalue())
    return found


def test_the_page_prints_what_it_says() -> None:
    text = PAGE.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) == text.count("```python") + text.count("```sh") > 20
    for block, printed in zip(blocks, outputs(text), strict=True):
        assert printed == (block["printed"] or ""), block["code"]


def write() -> None:
    text = PAGE.read_text(encoding="utf-8")
    made = iter(outputs(text))

    def filled(block: re.Match[str]) -> str:
        printed = next(made)
        shown = f"\n```text\n{printed}```\n" if printed else ""
        return f"```{block['kind']}\n{block['code']}```\n{shown}"

    PAGE.write_text(BLOCK.sub(filled, text), encoding="utf-8")


if __name__ == "__main__":
    write()
