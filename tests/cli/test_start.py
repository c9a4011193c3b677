"""What `zinc run` imports up to its first token, by name: each import costs the start of every command."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache

import zinc_rt
from zinc_rt.models.architectures import FILES

_SCRIPT = """
import json, sys
from zinc_rt.utils import aside
first = []
start = aside.Aside.start

def noting(self):
    if not first:
        first.extend(sys.modules)  # the weights are about to be loaded
    start(self)

aside.Aside.start = noting
from zinc_rt.cli.main import main
assert main(["run", "Once upon a time", "-n", "1", "--device", "cpu", *sys.argv[1:]]) == 0
print(json.dumps([first, list(sys.modules)]), file=sys.stderr)
"""

# A package stands for all of its modules. What a first token takes of the standard library and NumPy is not listed.
NEVER = {
    "tokenizers", "rich", "jinja2", "markupsafe", "llvmlite", "threadpoolctl", "llguidance", "uvicorn", "starlette",
    "httptools", "prometheus_client", "openai", "anthropic", "httpx", "ray", "asyncio", "anyio", "ssl", "http",
    "multiprocessing", "concurrent", "sqlite3", "numpy.random", "numpy.fft", "numpy.polynomial", "numpy.testing",
    "typer.rich_utils", "amdgpu_emu", "zinc_rt.amdgpu", "zinc_rt.backends.amdgpu", "zinc_rt.backends.reference",
    "zinc_rt.kernels.gpu", "zinc_rt.kernels.amd", "zinc_rt.seed", "zinc_rt.ray", "zinc_rt.dialects.families",
    "zinc_rt.dialects.forms", "zinc_rt.dialects.messages", "zinc_rt.dialects.parser", "zinc_rt.grammar",
    "zinc_rt.llm.chat", "zinc_rt.serving.api", "zinc_rt.serving.process", "zinc_rt.serving.thread",
    "zinc_rt.lang.frontend", "zinc_rt.lang.lower", "zinc_rt.text.chat_template", "zinc_rt.text.sandbox",
    "zinc_rt.gguf.writer",
}  # fmt: skip
"""Neither before the first token nor with it."""
LATER = {
    "msgspec",
    "zinc_rt.llm.model",
    "zinc_rt.llm.output_processor",
    "zinc_rt.scheduler",
    "zinc_rt.serving",
    "zinc_rt.text.tokenizer",
    "zinc_rt.text.bpe",
    "zinc_rt.backends.cpu.sampling",
}
"""Not before the weights are loaded, which needs no interpreter."""


@cache
def imported() -> tuple[set[str], set[str]]:
    """Modules imported before the weights are loaded, and up to the end. The kernels are in the cache by then."""
    with zinc_rt.load(device="cpu") as model:  # compiles kernels
        model.generate("Once upon a time", max_tokens=1)
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True, timeout=120)
    before, all_ = json.loads(done.stderr.rstrip().splitlines()[-1])
    return set(before), set(all_)


def within(modules: set[str], names: set[str]) -> set[str]:
    """The modules that are one of the names or below it."""
    return {m for m in modules if any(m == name or m.startswith(name + ".") for name in names)}


def test_the_first_token_imports_nothing_it_does_not_need() -> None:
    before, all_ = imported()
    assert "zinc_rt.backends.cpu.backend" in before
    assert "zinc_rt.llm.model" in all_
    assert within(all_, NEVER) == set()


def test_what_is_needed_later_is_imported_while_the_weights_are_loaded() -> None:
    before, all_ = imported()
    assert within(before, LATER) == set()
    assert {"zinc_rt.llm.model", "zinc_rt.text.tokenizer", "zinc_rt.scheduler"} <= all_


def test_one_architecture_is_imported() -> None:
    assert within(imported()[1], {f"zinc_rt.models.{file}" for file in FILES}) == {"zinc_rt.models.plain"}
