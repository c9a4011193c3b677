"""The table of architectures: which file builds which `general.architecture`.

To add one to the package, write its file and put it into `FILES`. From outside, a package adds one as an entry point
(`zinc_rt.models.plugins`), a program by `register`. A file of the package is imported when a model asks for it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Protocol, cast

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.errors import ModelError
from zinc_rt.utils.checks import show

FILES = (
    "plain", "layer_normed", "mistral3", "phi3", "olmo2", "glm4", "granite", "gemma3", "gemma4", "muse_glimmer",
    "mixtures", "llama4", "qwen35", "qwen4exp", "gpt_oss", "lfm2", "deepseek2", "deepseek4", "minicpm3",
    "kimi_linear", "mamba", "granite_hybrid", "falcon_h1", "nemotron_h", "bert",
)  # fmt: skip
"""Modules of this package, in the order in which their architectures are named in messages."""

REFUSED = {
    "clip": "the file is the projector of a model that reads pictures; open the file of its text part",
    "gemma3n": "its layers keep several streams, which nothing here computes",
    "gemma4-assistant": "it drafts tokens for a gemma4 model and is none by itself; run that with --spec mtp -md FILE",
}
"""Relatives of what is supported, and in a few words why they are not."""


class Architecture(Protocol):
    """An architecture file: a module, or any object with these two members.

    Where files of it may have blocks that draft, it has a third, `define_draft_head(file, name)`, as `define`: the
    graph of such a block, or None for a file without one.
    """

    @property
    def NAMES(self) -> Sequence[str]:
        """The values of `general.architecture` that it builds."""

    def define(self, file: GGUFFile, name: str) -> ModelDefinition:
        """Read the keys `name`.* and build the model's definition.

        Args:
            file: an open model file.
            name: one of NAMES, the file's.

        Raises:
            ModelError: the file is incomplete, or uses a feature that is not built.
        """


_ADDED: dict[str, Architecture] = {}
"""Those from outside."""


def _file(module: str) -> Architecture:
    return cast("Architecture", importlib.import_module(f"zinc_rt.models.{module}"))


@cache
def _own() -> Mapping[str, Architecture]:
    """Those of the package, all imported."""
    return {name: file for file in map(_file, FILES) for name in file.NAMES}


def register(architecture: Architecture) -> None:
    """Make `define` and everything above it build files of one more architecture.

    Raises:
        ModelError: one of its names is taken; nothing is registered then.
    """
    taken = [name for name in architecture.NAMES if name in _ADDED or name in _own()]
    if taken:
        raise ModelError(f"architecture {', '.join(map(repr, taken))} is registered already")
    _ADDED.update(dict.fromkeys(architecture.NAMES, architecture))


def unregister(architecture: Architecture) -> None:
    """Undo `register`."""
    for name in architecture.NAMES:
        del _ADDED[name]


def supported() -> tuple[str, ...]:
    """The values of `general.architecture` that can be built, those of plug-ins behind the others."""
    from zinc_rt.models import plugins  # not at import: what reads the metadata of packages takes a while to import

    return tuple(dict.fromkeys((*_own(), *_ADDED, *plugins.installed())))


def status_of_plug_ins() -> list[tuple[str, str, str]]:
    """Architecture, package, and whether it is used, for each plug-in; the package's own names go before all others."""
    from zinc_rt.models import plugins

    rows = []
    for name, plug_ins in plugins.installed().items():
        others = "zinc-rt itself" if name in _own() else "the program" if name in _ADDED else ""
        for plug_in in plug_ins:
            rival = others or ", ".join(p.package for p in plug_ins if p is not plug_in)
            rows.append((name, plug_in.package, f"not used: {rival} has this name" if rival else "used"))
    return rows


def architecture_for(name: str) -> Architecture:
    """What builds files of this architecture. Raises `ModelError`, which names what is supported."""
    files = (_file(name),) if name in FILES else map(_file, FILES)  # one by one, until one has it
    found = _ADDED.get(name) or next((file for file in files if name in file.NAMES), None)
    if found is not None:
        return found
    import difflib

    from zinc_rt.models import plugins

    plug_in = plugins.find(name)
    if plug_in is not None:
        return plug_in
    why = f": {REFUSED[name]}" if name in REFUSED else ""
    for near in difflib.get_close_matches(name, () if why else supported(), n=1):
        why = f"; the nearest name that is: {near!r}"
    raise ModelError(f"architecture {show(name)} is not supported{why}").with_advice(
        f"what would run: a model of architecture {', '.join(supported())} (docs/use/models.md); docs/how/extending.md"
        " says how a package adds one"
    )
