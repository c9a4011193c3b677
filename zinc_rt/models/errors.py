"""Errors of the model layer."""

from __future__ import annotations

from zinc_rt.errors import ZincError


class ModelError(ZincError):
    """The file cannot be run as a model."""


class UnsupportedArchitecture(ModelError):
    """The file's architecture has no module here."""


class UnsupportedFeature(ModelError):
    """The architecture is known, but this file uses a part of it that is not built."""


class MissingModelKey(ModelError):
    """A metadata key that the architecture needs is not in the file."""


class InvalidKey(ModelError):
    """A metadata key holds a value of the wrong type or outside its range."""


class MissingWeight(ModelError):
    """A tensor that the architecture needs is not in the file."""


class TensorShapeMismatch(ModelError):
    """A tensor's shape or type is not what the metadata calls for."""


class DuplicateArchitecture(ModelError):
    """An architecture of this name is registered already."""


class BadDefinition(ModelError):
    """An architecture file's definition contradicts its own graph: a fault of that file, not of the model."""
