"""`fit_models`: the models of one server, each with the options that fit it.

An option holds for all models where it makes sense. Files that belong to a model (adapters, projectors, what drafts) go
to each model that they fit; MODEL=FILE chooses one. A file that fits none is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from zinc_rt.adapters.file import AdapterFile
from zinc_rt.errors import UsageError, ZincError
from zinc_rt.gguf import GGUFFile
from zinc_rt.hub.resolve import AUTO, model_path, projectors_beside
from zinc_rt.llm.adapters import lora_requests
from zinc_rt.models import ModelDefinition, define
from zinc_rt.models.ranking import ranks
from zinc_rt.serving.api.served_model import ModelFile
from zinc_rt.speculation.draft_model import check_vocabulary
from zinc_rt.speculation.heads import with_hidden
from zinc_rt.speculation.options import DraftOptions, SpecKind
from zinc_rt.text import Tokenizer
from zinc_rt.utils.checks import show
from zinc_rt.utils.part_name import whole_stem
from zinc_rt.vision.projector import with_projector

_GENERATING: Final = frozenset({
    "lora", "lora_slots", "max_lora_rank", "mmproj", "spec", "draft_model", "draft_max", "draft_min",
})  # fmt: skip
"""Options of models that generate text."""
_SHOWN: Final = 3
"""Models whose reasons are told."""


@dataclass(frozen=True, slots=True)
class FittedModel:
    """One of several models. names: all of its names, the one that answers carry first. file: facts from its file.
    options: of `zinc_rt.load`. embeds: it makes vectors of texts. adapters: names of those that it is started with.
    pictures: whether it may read pictures.
    """

    names: tuple[str, ...]
    file: ModelFile = field(default_factory=ModelFile)
    options: Mapping[str, Any] = field(default_factory=dict)
    embeds: bool = False
    adapters: tuple[str, ...] = ()
    pictures: bool = False


def fit_models(paths: Sequence[Path], options: Mapping[str, Any], embeddings: bool = False) -> list[FittedModel]:
    """The models of these files.

    Args:
        paths: of the models, each other than the rest.
        options: of `zinc_rt.load`; `mmproj` and `draft_model` may be lists. Files may have MODEL= before them.
        embeddings: all models that can are to embed texts.

    Raises:
        UsageError: two models or adapters have one name, or a file fits no model.
        GGUFError, AdapterError: a file that cannot be read.
    """
    with ExitStack() as stack:
        files = [stack.enter_context(GGUFFile.open(path)) for path in paths]
        names = _names(paths, files)
        every = [_Model(path, file, names[path], embeddings) for path, file in zip(paths, files, strict=True)]
        fitting = _Fitting([model for model in every if model.generates], _by_name(every))
        fitting.adapters(options)
        fitting.projectors(options.get("mmproj"))
        fitting.drafts(options)
        rest = {name: value for name, value in options.items() if name not in _GENERATING}
        return [model.fitted(rest) for model in every]


class _Model:
    """A model's open file, and the options that fit it."""

    def __init__(self, path: Path, file: GGUFFile, names: tuple[str, ...], embeddings: bool) -> None:
        self.path, self.file, self.names, self._embeddings = path, file, names, embeddings
        self.options: dict[str, Any] = {}
        self.adapters: list[str] = []

    @cached_property
    def definition(self) -> ModelDefinition:
        """Its graph. Raises `ModelError`."""
        return define(self.file)

    @property
    def embeds(self) -> bool:
        """Whether it makes vectors of texts: it is told to, or its file says so. Its graph would say it later."""
        data = self.file.metadata
        name = data.get("general.architecture")
        pools, causal = (data.get(f"{name}.{key}") for key in ("pooling_type", "attention.causal"))
        return not ranks(data) and (self._embeddings or bool(pools) or causal is False)

    @property
    def generates(self) -> bool:
        """Whether it generates texts."""
        return not self.embeds and not ranks(self.file.metadata)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Raises `TokenizerError`."""
        return Tokenizer.from_metadata(self.file.metadata)

    def fitted(self, rest: Mapping[str, Any]) -> FittedModel:
        """It with the options that all models have."""
        reads = self.options.get("mmproj")
        return FittedModel(
            self.names,
            ModelFile.read(self.file),
            {**rest, **self.options},
            self.embeds,
            tuple(self.adapters),
            reads is not None and (reads != AUTO or bool(projectors_beside(self.path))),
        )


Check = Callable[[_Model], None]
"""Raises `ZincError` where something does not fit a model."""


@dataclass
class _Fitting:
    """models: those that generate text. by_name: all models by all of their names."""

    models: Sequence[_Model]
    by_name: Mapping[str, _Model]
    taken: set[str] = field(default_factory=set)

    def adapters(self, options: Mapping[str, Any]) -> None:
        """Give each adapter to the models that it fits."""
        room = {name: options[name] for name in ("lora_slots", "max_lora_rank") if options.get(name) is not None}
        for model in self.models:
            model.options |= room
        for request in lora_requests(options.get("lora")):
            wanted, path = self._split(str(request.path))
            with AdapterFile.open(path) as adapter:

                def check(model: _Model, adapter: AdapterFile = adapter) -> None:
                    adapter.check_fits(model.file)

                name = request.name or adapter.name
                fits = self._fits("--lora", path, wanted, check)
            if name in self.by_name:
                raise UsageError(f"an adapter and a model are both called {show(name)}; --lora-modules gives a name")
            if request.name is not None and (len(fits) > 1 or name in self.taken):
                raise UsageError(
                    f"--lora-modules {name} is of more than one model: {_listed(fits)}; give --lora-modules"
                    f" {name}={fits[0].names[0]}={path}"
                )
            self.taken.add(name)
            for model in fits:
                model.adapters.append(name)
                model.options.setdefault("lora", []).append((path, request.scale, request.name))

    def projectors(self, given: str | Sequence[str] | None) -> None:
        """Give each projector to the models that it fits; the others look beside their files."""
        if given is None:
            return
        for text in () if given == AUTO else _every(given):
            wanted, path = self._split(text)
            with GGUFFile.open(path) as shown:

                def check(model: _Model, shown: GGUFFile = shown) -> None:
                    with_projector(model.definition, model.file, shown)

                self._give("--mmproj", "mmproj", path, self._fits("--mmproj", path, wanted, check))
        for model in self.models:
            model.options.setdefault("mmproj", AUTO)

    def drafts(self, options: Mapping[str, Any]) -> None:
        """Let each model draft that has something to draft with."""
        files = _every(options.get("draft_model"))
        given = {name: options[name] for name in ("spec", "draft_max", "draft_min") if options.get(name) is not None}
        kind = DraftOptions(**given, draft_model=files[0] if files else None).kind
        if kind is SpecKind.off:
            return
        fits = self.models
        if kind is SpecKind.mtp and not files:
            fits = self._fits("--spec", "mtp", None, lambda model: _check_head(model, None))
        for text in files:
            wanted, path = self._split(text)
            path = model_path(path)
            with self._drafting(kind, path) as check:
                fits = self._fits("--model-draft", path, wanted, check)
            self._give("--model-draft", "draft_model", path, fits)
        for model in fits if not files else [one for one in self.models if "draft_model" in one.options]:
            model.options |= {**given, "spec": kind.value}

    @contextmanager
    def _drafting(self, kind: SpecKind, path: str) -> Iterator[Check]:
        """What says whether the file of a draft model, a head or an assistant fits."""
        if kind is SpecKind.mtp:
            yield lambda model: _check_head(model, path)
            return
        with GGUFFile.open(path) as file:
            draft = Tokenizer.from_metadata(file.metadata)

            def check(model: _Model) -> None:
                if model.file.file_size <= file.file_size:
                    raise UsageError(f"{path} is not smaller than the model")
                check_vocabulary(draft, model.tokenizer)

            yield check

    def _split(self, text: str) -> tuple[_Model | None, str]:
        """The model that a text names before its file, and the file."""
        name, equals, path = text.partition("=")
        if equals and name in self.by_name and not Path(text).exists():
            return self.by_name[name], path
        return None, text

    def _fits(self, option: str, value: str, wanted: _Model | None, check: Check) -> list[_Model]:
        """The models that something fits. wanted: it has to fit that one. Raises `UsageError` where it fits none."""
        found, reasons = [], []
        for model in self.models if wanted is None else [wanted]:
            try:
                check(model)
                found.append(model)
            except ZincError as error:
                reasons.append(f"{model.names[0]}: {error}")
        if not found:
            more = f"; and {len(reasons) - _SHOWN} more" if len(reasons) > _SHOWN else ""
            said = "; ".join(reasons[:_SHOWN]) or "no model here generates text"
            raise UsageError(f"{option} {value} fits no model; {said}{more}")
        return found

    @staticmethod
    def _give(flag: str, option: str, path: str, models: Iterable[_Model]) -> None:
        """Set an option that a model has once."""
        for model in models:
            if model.options.setdefault(option, path) != path:
                name = model.names[0]
                raise UsageError(
                    f"{flag} {model.options[option]} and {path} both fit {name}; give {flag} {name}=FILE for one of"
                    " them"
                )


def _check_head(model: _Model, path: str | None) -> None:
    with_hidden(model.file, model.definition, path)


def _every(given: str | Sequence[str] | None) -> Sequence[str]:
    return () if given is None else (given,) if isinstance(given, str) else given


def _listed(models: Iterable[_Model]) -> str:
    return ", ".join(model.names[0] for model in models)


def _by_name(models: Iterable[_Model]) -> dict[str, _Model]:
    return {name: model for model in models for name in model.names}


def _names(paths: Sequence[Path], files: Sequence[GGUFFile]) -> dict[Path, tuple[str, ...]]:
    """Names by files: the file's own, then the one inside where no other file has it. Raises `UsageError`."""
    stems = {path: whole_stem(path.name) for path in paths}
    inside = {path: str(file.metadata.get("general.name", "")) for path, file in zip(paths, files, strict=True)}
    if twice := [stem for stem, n in Counter(stems.values()).items() if n > 1]:
        raise UsageError(f"two models are called {twice[0]!r}; rename one of the files, or give one of them")
    taken = Counter([*stems.values(), *inside.values()])
    return {
        path: (stem, inside[path]) if inside[path] and taken[inside[path]] == 1 else (stem,)
        for path, stem in stems.items()
    }
