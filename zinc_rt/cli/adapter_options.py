"""The options about adapters (LoRA), and what they mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from zinc_rt.cli import options as o
from zinc_rt.cli.option_records import OptionRecord
from zinc_rt.errors import UsageError

Given = tuple[str, float, str | None]
"""A file, its scale, its name where the caller gave one: as `zinc_rt.load` takes it in `lora`."""

LoraOption = Annotated[
    list[str] | None,
    o.option(
        o.MODEL,
        "--lora",
        metavar="FILE[:SCALE]",
        help="A GGUF adapter for all texts, maybe with a scale of what it adds; once for each, or with commas.",
    ),
]
LoraScaled = Annotated[
    list[str] | None, o.option(o.MODEL, "--lora-scaled", metavar="FILE:SCALE", help="The same, with a scale.")
]
LoraModules = Annotated[
    list[str] | None,
    o.option(
        o.MODEL,
        "--lora-modules",
        metavar="NAME=FILE",
        help="A GGUF adapter that requests choose by NAME as their model; once for each.",
    ),
]
WithoutApply = Annotated[
    bool,
    o.option(
        o.MODEL,
        "--lora-init-without-apply",
        help="Load the adapters of --lora with a scale of 0: requests choose them.",
    ),
]
LoraSlots = Annotated[
    int | None,
    o.option(
        o.MODEL,
        "--lora-slots",
        metavar="N",
        min=0,
        help="Room for so many more adapters, which administrators load while the server runs. Default: 0.",
    ),
]
MaxLoraRank = Annotated[
    int | None,
    o.option(
        o.MODEL,
        "--max-lora-rank",
        metavar="N",
        min=1,
        help="Greatest rank of adapters that are loaded later. Default: that of those given, at least 16.",
    ),
]


def given_adapters(lora: Sequence[str] | None, scaled: Sequence[str] | None) -> list[Given]:
    """The adapters of --lora and --lora-scaled, in this order. Raises `UsageError`."""
    found = [_scaled("--lora", one) for one in _listed(lora)]
    for one in _listed(scaled):
        path, scale, name = _scaled("--lora-scaled", one)
        if path == one:
            raise UsageError(f"--lora-scaled is {one!r}; it must be FILE:SCALE")
        found.append((path, scale, name))
    return found


def _listed(values: Iterable[str] | None) -> list[str]:
    """Each file of an option; commas divide them, unless there is a file of the whole name."""
    found = []
    for value in values or ():
        found += [value] if Path(value).exists() else value.split(",")
    return found


def _scaled(option: str, text: str) -> Given:
    path, colon, scale = text.rpartition(":")
    if not text or (colon and not path):
        raise UsageError(f"{option} is {text!r}; it must be FILE or FILE:SCALE")
    if colon and not Path(text).exists():
        try:
            return path, float(scale), None
        except ValueError:
            pass  # a colon in a name: the file is looked for
    return text, 1.0, None


@dataclass(frozen=True, kw_only=True)
class ServedAdapterOptions(OptionRecord):
    """Adapters that requests choose, and room for more."""

    lora_modules: LoraModules = None
    lora_init_without_apply: WithoutApply = False
    lora_slots: LoraSlots = None
    max_lora_rank: MaxLoraRank = None

    def load_options(self, lora: Sequence[Given]) -> dict[str, Any]:
        """It as keyword arguments of `zinc_rt.load`. lora: of --lora and --lora-scaled. Raises `UsageError`."""
        scale = 0.0 if self.lora_init_without_apply else None
        every = [(path, own if scale is None else scale, name) for path, own, name in lora]
        for text in self.lora_modules or ():
            name, equals, path = text.partition("=")
            if not (name and equals and path):
                raise UsageError(f"--lora-modules is {text!r}; it must be NAME=FILE")
            every.append((path, 0.0, name))
        return {"lora": every or None, "lora_slots": self.lora_slots, "max_lora_rank": self.max_lora_rank}
