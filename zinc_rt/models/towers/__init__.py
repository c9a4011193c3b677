"""Towers: the networks that turn a picture's pixels into rows of a text model, from `mmproj` files.

One file a tower, as one file an architecture. A tower is two graphs: the encoder works on patches, and the projector on
the rows that patches are joined to. Between them the host only moves numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.errors import ModelError
from zinc_rt.models.keys import Keys
from zinc_rt.models.towers import gemma4v, pixtral, qwen2vl, qwen3vl, qwen25vl, siglip
from zinc_rt.models.towers.tower import Tower

ARCHITECTURE: Final = "clip"
"""`general.architecture` of a projector's file."""
TOWERS: Final[dict[str, Callable[[GGUFFile], Tower]]] = {
    "qwen3vl_merger": qwen3vl.Qwen3VL,
    "qwen2.5vl_merger": qwen25vl.Qwen25VL,
    "qwen2vl_merger": qwen2vl.Qwen2VL,
    "gemma4v": gemma4v.Gemma4V,
    "gemma3": siglip.Gemma3,
    "idefics3": siglip.Idefics3,
    "pixtral": pixtral.Pixtral,
}


def is_projector(file: GGUFFile) -> bool:
    """Whether the file holds a tower rather than a text model."""
    return file.metadata.get("general.architecture") == ARCHITECTURE


def projector_kind(file: GGUFFile) -> str:
    """The file's projector type. Raises `ModelError` where it names none."""
    keys = Keys(file.metadata, ARCHITECTURE)
    return keys.text("projector_type" if keys.has("projector_type") else "vision.projector_type")


def define_tower(file: GGUFFile) -> Tower:
    """The tower of a projector's file.

    Raises:
        ModelError: the file is no projector, has no tower for pictures, or one that does not run here.
    """
    if not is_projector(file):
        found = file.metadata.get("general.architecture")
        raise ModelError(f"{file.path} is a model of architecture {found!r}; a projector (mmproj-*.gguf) is needed")
    if not Keys(file.metadata, ARCHITECTURE).flag("has_vision_encoder", False):
        raise ModelError(f"{file.path} has no tower for pictures (clip.has_vision_encoder is not true)")
    kind = projector_kind(file)
    if kind not in TOWERS:
        raise ModelError(f"{file.path} has a projector of type {kind!r}; those that run are {', '.join(TOWERS)}")
    return TOWERS[kind](file)
