"""Architectures that other packages bring, as entry points of the group `zinc_rt.models`.

The entry's name is the architecture's, its value a module or an object as `Architecture` describes it:

    [project.entry-points."zinc_rt.models"]
    my-model = "zinc_rt_mymodel"

Which packages are installed is read when somebody asks, never at import; a plug-in is imported when a file needs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from zinc_rt.errors import ZincError
from zinc_rt.gguf import GGUFFile
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.errors import ModelError

GROUP: Final = "zinc_rt.models"


@dataclass(frozen=True)
class PlugIn:
    """An installed package's architecture: an `Architecture` that is imported when it is used.

    Whatever the package raises that is no `ZincError` becomes a `ModelError` with the package's name.
    """

    entry: EntryPoint

    @property
    def package(self) -> str:
        """Name and version of the package, as pip has them."""
        found = self.entry.dist
        return self.entry.value if found is None else f"{found.name} {found.version}"

    @property
    def NAMES(self) -> Sequence[str]:
        """The architecture of this entry; a package has an entry for each."""
        return (self.entry.name,)

    def define(self, file: GGUFFile, name: str) -> ModelDefinition:
        """See `Architecture.define`."""
        with self._blamed():
            made = self._loaded().define(file, name)
            if not isinstance(made, ModelDefinition):
                raise TypeError(f"define returned {type(made).__name__}, not ModelDefinition")
        return made

    def define_draft_head(self, file: GGUFFile, name: str) -> ModelDefinition | None:
        """See `Architecture`; None for a plug-in without this function."""
        with self._blamed():
            make = getattr(self._loaded(), "define_draft_head", None)
            made: ModelDefinition | None = None if make is None else make(file, name)
        return made

    def _loaded(self) -> Any:
        loaded = self.entry.load()
        if self.entry.name not in loaded.NAMES:
            raise ValueError(f"{self.entry.value} has NAMES {list(loaded.NAMES)}, without {self.entry.name!r}")
        return loaded

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        try:
            yield
        except ZincError:
            raise
        except (Exception, SystemExit) as error:
            raise ModelError(
                f"the package {self.package}, which has architecture {self.entry.name!r}, fails:"
                f" {type(error).__name__}: {error}"
            ).with_advice(
                f"update or uninstall {self.package.split(' ', maxsplit=1)[0]}; `zinc env` lists plug-ins"
            ) from error


def installed() -> Mapping[str, Sequence[PlugIn]]:
    """All plug-ins by architecture, in the order of names; more than one where packages have the same name."""
    found: dict[str, list[PlugIn]] = {}
    for plug_in in sorted(map(PlugIn, entry_points(group=GROUP)), key=lambda p: (p.entry.name, p.package)):
        found.setdefault(plug_in.entry.name, []).append(plug_in)
    return found


def find(name: str) -> PlugIn | None:
    """The plug-in for an architecture. Raises `ModelError` where packages contend for the name."""
    plug_ins = installed().get(name, ())
    if len(plug_ins) > 1:
        raise ModelError(
            f"architecture {name!r} comes from {len(plug_ins)} packages: {', '.join(p.package for p in plug_ins)}"
        ).with_advice("uninstall all of them but one")
    return plug_ins[0] if plug_ins else None
