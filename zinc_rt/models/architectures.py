"""The table of architectures: which file builds which `general.architecture`.

To add one to the package, write its file and put it into `FILES`. To add one from outside, call `register`. A file of
the package is imported when a model asks for it.
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
    "llama", "qwen2", "qwen3", "smollm3", "mistral3", "phi3", "olmo2", "glm4", "granite", "gemma3", "gemma4",
    "qwen2moe", "qwen3moe", "qwen35", "gpt_oss", "lfm2", "glm4moe", "deepseek2", "qwen4exp", "bert",
)  # fmt: skip
"""Modules of this package, in the order in which their architectures are named in messages."""

REFUSED = {
    "clip": "the file is the projector of a model that reads pictures; open the file of its text part",
    "gemma3n": "its layers keep several streams, which nothing here computes",
    "gemma4-assistant": "it drafts tokens for a gemma4 model and is none by itself; run that with --spec mtp -md FILE",
    "granitehybrid": "its layers without attention are of the kind mamba2, which nothing here computes",
    "mistral4": "its latent attention has metadata keys of its own, which nothing here reads",
    "phimoe": "its experts stand between norms with biases, which no layer here has",
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
    """The values of `general.architecture` that can be built."""
    return (*_own(), *_ADDED)


def architecture_for(name: str) -> Architecture:
    """What builds files of this architecture. Raises `ModelError`, which names what is supported."""
    found = _ADDED.get(name)
    if found is None and name in FILES and name in _file(name).NAMES:
        return _file(name)  # and no other file is imported
    found = found or _own().get(name)
    if found is None:
        why = f": {REFUSED[name]}" if name in REFUSED else ""
        raise ModelError(f"architecture {show(name)} is not supported{why}").with_advice(
            f"what would run: a model of architecture {', '.join(supported())}"
        )
    return found
