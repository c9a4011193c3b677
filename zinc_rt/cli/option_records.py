"""Records of options: a verb has one parameter for options that belong together, and checks them as one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, get_type_hints

OptionOf = tuple[str, Any, Any]
"""An option's name as a parameter, its annotated type, its default."""


class OptionRecord:
    """Options that belong together: a dataclass whose fields are options of the command line."""

    @classmethod
    def options(cls) -> Iterator[OptionOf]:
        """Its options, in the order of help."""
        hints = get_type_hints(cls, include_extras=True)
        for field in fields(cls):  # type: ignore[arg-type]
            yield field.name, hints[field.name], field.default


def takes_records(verb: Callable[..., int]) -> Callable[..., int]:
    """The verb with the options of its records as parameters, each record's in the place of the record."""
    hints = get_type_hints(verb, include_extras=True)
    parameters: list[inspect.Parameter] = []
    records: dict[str, tuple[type[OptionRecord], list[str]]] = {}
    for parameter in inspect.signature(verb).parameters.values():
        kind = hints[parameter.name]
        if not (isinstance(kind, type) and issubclass(kind, OptionRecord)):
            parameters.append(parameter.replace(annotation=kind))
            continue
        options = list(kind.options())
        records[parameter.name] = kind, [name for name, _, _ in options]
        parameters += [
            inspect.Parameter(name, parameter.kind, default=default, annotation=annotation)
            for name, annotation, default in options
        ]

    @functools.wraps(verb)
    def command(**given: Any) -> int:
        made = {name: kind(**{one: given.pop(one) for one in names}) for name, (kind, names) in records.items()}
        return verb(**made, **given)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command
