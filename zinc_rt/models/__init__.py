"""GGUF architectures: a file in; its figures, the graph of its decode step, its constants and its states out."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import cast

from zinc_rt.gguf import SUPPORTED, GGUFFile, UnsupportedTensorType, get
from zinc_rt.gguf.errors import OTHER_FORMAT
from zinc_rt.models.architectures import Architecture, architecture_for, register, supported, unregister
from zinc_rt.models.definition import (
    ModelDefinition,
    ModelInfo,
    StateKind,
    StateSpec,
    WeightRows,
)
from zinc_rt.models.errors import ModelError
from zinc_rt.models.hidden import reads_whole
from zinc_rt.utils.checks import printable, show

__all__ = [
    "Architecture",
    "ModelDefinition",
    "ModelInfo",
    "StateKind",
    "StateSpec",
    "WeightRows",
    "architecture_of",
    "define",
    "define_assistant",
    "define_draft_head",
    "register",
    "supported",
    "unregister",
]

# Tables that some converters store although they follow from the metadata.
_NO_WEIGHTS = (".attn_rot_embd", ".rotary_emb.inv_freq")


def architecture_of(file: GGUFFile) -> str:
    """The file's `general.architecture`. Raises `ModelError`."""
    name = file.metadata.get("general.architecture")
    if name is None:
        raise ModelError(f"{file.path} has no general.architecture; it is no model file (a vocabulary or an adapter?)")
    if not isinstance(name, str):
        raise ModelError(f"general.architecture is {show(name)}, a string is needed")
    return name


def define(file: GGUFFile) -> ModelDefinition:
    """Read the configuration and build the graph.

    Raises `ModelError`, which names what is supported.
    """
    name = architecture_of(file)
    architecture = architecture_for(name)
    _refuse_types(file)
    definition = architecture.define(file, name)
    _refuse_causality(file, definition)
    _refuse_unused(file, definition)
    return definition


def define_draft_head(file: GGUFFile) -> ModelDefinition | None:
    """The graph of the block with which a model guesses further tokens; None where the file has none, or where nothing
    here knows its architecture's.

    Its inputs beside a step's are `drafts.PRIOR`; its outputs are logits, tokens and `hidden.HIDDEN`. Tensors that it
    shares with the model have the same buffer names. Raises `ModelError`.
    """
    name = architecture_of(file)
    make = getattr(architecture_for(name), "define_draft_head", None)
    made = make(file, name) if make is not None else None
    return cast("ModelDefinition | None", made)


def define_assistant(file: GGUFFile, target: GGUFFile, info: ModelInfo) -> ModelDefinition:
    """The graph of a small model in a file of its own, which drafts for the model in `target`.

    info: the figures of the model in `target`. Inputs and outputs are those of `define_draft_head`, and
    `hidden.LAST_POSITIONS`. Weights and states of the large model have its buffers' names. Raises `ModelError`.
    """
    from zinc_rt.models import gemma4_assistant  # and what it is made of

    name = architecture_of(file)
    if name != gemma4_assistant.NAME:
        raise ModelError(
            f"{file.path} is of architecture {show(name)}; what drafts from another model's hidden states is of"
            f" architecture {gemma4_assistant.NAME!r}"
        )
    _refuse_types(file)
    definition = gemma4_assistant.define_assistant(file, target, info)
    _refuse_unused(file, definition)
    return definition


def _refuse_causality(file: GGUFFile, definition: ModelDefinition) -> None:
    """Refuses a file whose tokens see later tokens, if those of its architecture do not."""
    key = f"{definition.info.architecture}.attention.causal"
    if not get(file.metadata, key, bool, True) and not reads_whole(definition.graph):
        raise ModelError(
            f"{file.path} has {key} = false: its tokens see the ones after them, which this architecture does not do"
            " here"
        ).with_advice("what would run: a model that generates text; docs/use/models.md lists those that embed texts")


def _refuse_types(file: GGUFFile) -> None:
    """Tensors in a format that nothing reads."""
    wrong = [tensor for tensor in file.tensors.values() if not tensor.type.readable]
    if wrong:
        first, types = wrong[0], ", ".join(sorted({tensor.type.name for tensor in wrong}))
        more = f", like {len(wrong) - 1} others ({types})" if len(wrong) > 1 else ""
        raise UnsupportedTensorType(
            f"tensor {show(first.name)} is of type {first.type.name}, which is not supported here yet{more}; supported:"
            f" {', '.join(kind.name for kind in SUPPORTED)}",
            path=printable(file.path),
        ).with_advice(OTHER_FORMAT)


def _refuse_unused(file: GGUFFile, definition: ModelDefinition) -> None:
    """A tensor that nothing reads means a model that is not quite this architecture: its answers would be wrong."""
    spared = definition.host_tensors | definition.unread
    read = dict.fromkeys(spared, Fraction(0))
    every = (w if isinstance(w, tuple) else (w,) for w in definition.weights.values())
    for rows in itertools.chain.from_iterable(every):
        read[rows.tensor] = read.get(rows.tensor, Fraction(0)) + rows.count(file.tensors[rows.tensor].n_rows)
    unused = [name for name in file.tensors if name not in read and not name.endswith(_NO_WEIGHTS)]
    if unused:
        raise ModelError(
            f"{file.path} has {len(unused)} tensors that architecture {definition.graph.name!r} does not use here, the"
            f" first {unused[0]}: it is a variant that is not supported"
        )
    for name, n_rows in read.items():
        if name not in spared and n_rows < file.tensors[name].n_rows:
            raise ModelError(
                f"architecture {definition.graph.name!r} reads {n_rows} of the {file.tensors[name].n_rows} rows of"
                f" {name}"
            )
