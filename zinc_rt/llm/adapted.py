"""`AdaptedModel`: a model whose texts have other adapters."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from zinc_rt.llm.model import Model

if TYPE_CHECKING:
    from zinc_rt.grammar.vocabulary import GrammarVocabulary
    from zinc_rt.llm.chat import ChatFormat
    from zinc_rt.text import ChatTemplate


class AdaptedModel(Model):
    """The same model: its engine, its memory, its file. Only the adapters of texts differ; closing it closes the model.

    adapters: names and scales.
    """

    def __init__(self, model: Model, adapters: tuple[tuple[str, float], ...]) -> None:
        vars(self).update({name: value for name, value in vars(model).items() if name not in _OF_THE_MODEL})
        self._model = model
        self.input_processor = copy(model.input_processor)
        self.input_processor.adapters = lambda: adapters
        self._rows = copy(model._rows)
        self._rows.adapters = lambda: adapters

    @property
    def _closed(self) -> bool:  # type: ignore[override]
        return self._model._closed

    @property
    def chat_template(self) -> ChatTemplate:
        """The model's."""
        return self._model.chat_template

    @property
    def chat_format(self) -> ChatFormat:
        """The model's."""
        return self._model.chat_format

    @property
    def grammar_vocabulary(self) -> GrammarVocabulary:
        """The model's."""
        return self._model.grammar_vocabulary

    def close(self) -> None:
        """See `Model.close`."""
        self._model.close()


_OF_THE_MODEL = ("_closed", "chat_template", "chat_format", "grammar_vocabulary")
