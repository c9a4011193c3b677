"""`LoadedModel`: what a model on an engine is and says of itself, and its tokens and texts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from zinc_rt.backends.devices import Device
from zinc_rt.engine.engine import Engine, EngineError
from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import Graph
from zinc_rt.mem.errors import MemoryPlanError
from zinc_rt.mem.plan import MemoryPlan
from zinc_rt.models import ModelDefinition, ModelInfo
from zinc_rt.scheduler.messages import Grammar
from zinc_rt.utils.checks import true_or_false, whole_numbers

if TYPE_CHECKING:
    from zinc_rt.grammar.matcher import Matcher
    from zinc_rt.grammar.vocabulary import GrammarVocabulary
    from zinc_rt.llm.chat import ChatFormat
    from zinc_rt.text import ChatTemplate, Tokenizer


class LoadedModel:
    """A model that an engine has loaded, as far as nothing is computed.

    Attributes:
        name: `general.name`, or the file's name without its ending.
        file: the GGUF file, open.
        info: architecture and sizes.
        graph: the operations of a step.
        tokenizer: text to token ids and back.
        engine: the device with the model on it.
    """

    def __init__(self, file: GGUFFile, definition: ModelDefinition, tokenizer: Tokenizer, engine: Engine) -> None:
        self.file = file
        self.info: ModelInfo = definition.info
        self.graph: Graph = definition.graph
        self.tokenizer = tokenizer
        self.engine = engine
        name = file.metadata.get("general.name")
        self.name = name if isinstance(name, str) and name else Path(file.path).stem
        self._closed = False

    def __repr__(self) -> str:
        if self._closed:
            return f"<Model {self.name!r}, closed>"
        does = "generates" if self.engine.generates else "embeds"
        return (
            f"<Model {self.name!r}: {self.architecture}, {self.quantization}, n_ctx={self.n_ctx},"
            f" device={str(self.device)!r}, {does}>"
        )

    @property
    def architecture(self) -> str:
        """The GGUF architecture."""
        return self.info.architecture

    @cached_property
    def quantization(self) -> str:
        """The formats of its weights in a word, as "Q4_K_M"."""
        from zinc_rt.quantizing.presets import quantization_of

        return quantization_of(self.file)

    @property
    def n_ctx(self) -> int:
        """Tokens of a sequence, prompt and text together."""
        if self.engine.sizes is None:
            raise EngineError("no model is loaded")
        return self.engine.sizes.n_ctx

    @property
    def n_vocab(self) -> int:
        """Width of a row of logits."""
        return self.info.n_vocab

    @property
    def plan(self) -> MemoryPlan:
        """What loading took, in bytes by purpose."""
        if self.engine.plan is None:
            raise MemoryPlanError("no model is loaded")
        return self.engine.plan

    @property
    def device(self) -> Device:
        """The device in use."""
        return self.engine.device

    @cached_property
    def chat_template(self) -> ChatTemplate:
        """The file's chat template. Raises `ChatTemplateMissing`."""
        from zinc_rt.text import ChatTemplate

        return ChatTemplate.from_metadata(self.file.metadata, self.tokenizer)

    def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Token ids of a text.

        Args:
            text: any text.
            add_special: add the tokens that the model wants at the beginning and the end.
            parse_special: take names such as "<|im_end|>" for control tokens.

        Returns:
            The ids; `detokenize` gives the text back.

        Raises:
            TokenizerError: what is given is no text.
            UsageError: a switch is neither True nor False.
        """
        true_or_false("add_special", add_special)
        true_or_false("parse_special", parse_special)
        return self.tokenizer.encode(text, add_special=add_special, parse_special=parse_special)

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens included. Raises `UsageError`, `TokenizerError`."""
        return self.tokenizer.decode(whole_numbers("token ids", ids))

    def token_text(self, token_id: int) -> str:
        """What a token adds to a text, with U+FFFD for what is no whole character. Raises `TokenizerError`."""
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """What a token adds to a text; the name of a special token. Raises `TokenizerError`."""
        return self.tokenizer.token_bytes(token_id)

    @cached_property
    def grammar_vocabulary(self) -> GrammarVocabulary:
        """The tokens' bytes, as grammars need them."""
        from zinc_rt.grammar.vocabulary import GrammarVocabulary

        return GrammarVocabulary(self.tokenizer)

    def _compile(self, grammar: Grammar) -> Matcher:
        """A grammar's matcher. Raises `GrammarError`."""
        from zinc_rt.grammar.matcher import compile_grammar

        return compile_grammar(grammar, self.grammar_vocabulary)

    @cached_property
    def chat_format(self) -> ChatFormat:
        """How the model converses: template, dialect, tokens. Raises `ChatTemplateMissing`."""
        from zinc_rt.llm.chat import ChatFormat

        return ChatFormat(self.tokenizer, self.chat_template, self.grammar_vocabulary)
