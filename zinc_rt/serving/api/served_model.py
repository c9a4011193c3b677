"""`ServedModel`: the model as the HTTP side knows it: its names, its tokenizer and its chat template, no weights."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

from zinc_rt import numerics
from zinc_rt.gguf import GGUFFile
from zinc_rt.grammar.vocabulary import GrammarVocabulary
from zinc_rt.llm.chat import ChatFormat
from zinc_rt.models.ranking import ranks
from zinc_rt.quantizing.presets import quantization_of
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.serving.api.config import DEFAULTS
from zinc_rt.serving.api.errors import ApiError, invalid, too_long
from zinc_rt.serving.api.pictures import RequestPictures, shown_part
from zinc_rt.serving.api.served_adapters import ServedAdapters
from zinc_rt.text import ChatTemplate, ChatTemplateMissing, Tokenizer, TokenizerError
from zinc_rt.text.pairs import PairPrompt

T = TypeVar("T")

ANY_NAME: Final = "*"
"""The alias by which a model is served under every name."""
_SAMPLES, _SAMPLE_BYTES = 64, 4096


@dataclass(frozen=True, slots=True)
class ModelFile:
    """Facts from a model's file. path: where it is. size: bytes. created: when it was written, seconds since 1970.
    parameters: elements of all tensors. quantization: the format that it names, or that most of it is in. metadata:
    numbers, texts and truth values of the model itself.
    """

    path: Path = Path()
    size: int = 0
    created: int = 0
    parameters: int = 0
    quantization: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def architecture(self) -> str:
        """The model's; empty where the file does not say."""
        return str(self.metadata.get("general.architecture", ""))

    @classmethod
    def read(cls, file: GGUFFile) -> ModelFile:
        """That of an open file."""
        metadata = {
            key: file.metadata[key]
            for key in file.metadata
            if file.metadata.info(key).item is None and not key.startswith("tokenizer.chat_template")
        }
        parameters = sum(tensor.n_elements for tensor in file.tensors.values())
        path = Path(file.path)
        return cls(path, file.file_size, int(path.stat().st_mtime), parameters, quantization_of(file), metadata)


@dataclass(frozen=True)
class ServedModel:
    """One model, by all of its names. any_name: any other name is accepted, too. chat: how it converses; one thread at
    a time, by `lock`. n_ctx: tokens of prompt and answer together. fingerprint: changes
    with the weights. adapters: that requests may choose. dimensions: elements of a vector for a model that embeds, else
    None. defaults: values of parameters that requests leave out. pictures: reads those of requests; None for a model
    that reads none. pairs: makes prompts of a query and a text; None for a model that does not rank.
    """

    names: tuple[str, ...]
    tokenizer: Tokenizer
    chat: ChatFormat | None
    template: ChatTemplate | None
    n_ctx: int
    fingerprint: str
    dimensions: int | None = None
    defaults: SamplingParams = DEFAULTS
    any_name: bool = False
    file: ModelFile = field(default_factory=ModelFile)
    pictures: RequestPictures | None = None
    pairs: PairPrompt | None = None
    adapters: ServedAdapters = field(default_factory=ServedAdapters)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2, "zinc-text"))

    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def name(self) -> str:
        """The name that answers carry."""
        return self.names[0]

    @classmethod
    def read(
        cls,
        file: GGUFFile,
        tokenizer: Tokenizer,
        n_ctx: int,
        alias: Sequence[str] = (),
        pictures: RequestPictures | None = None,
        projector: Path | None = None,
    ) -> ServedModel:
        """The model of an open file. alias: names that replace the file's own; "*" for any, beside the others.
        pictures: reads those of requests; projector: the file that it needs.
        """
        path = Path(file.path)
        general = file.metadata.get("general.name")
        own = general if isinstance(general, str) and general else path.stem
        try:
            template = ChatTemplate.from_metadata(file.metadata, tokenizer)
        except ChatTemplateMissing:
            template = None
        named = tuple(name for name in alias if name != ANY_NAME)
        return cls(
            names=named or tuple(dict.fromkeys((own, path.stem))),
            any_name=ANY_NAME in alias,
            tokenizer=tokenizer,
            chat=None
            if template is None
            else ChatFormat(tokenizer, template, pictures=shown_part if pictures else None),
            template=template,
            n_ctx=n_ctx,
            fingerprint=fingerprint(*filter(None, (path, projector))),
            file=ModelFile.read(file),
            pictures=pictures,
            pairs=PairPrompt.from_metadata(file.metadata, tokenizer) if ranks(file.metadata) else None,
        )

    def close(self) -> None:
        """End the threads and the process that renders."""
        self.pool.shutdown(wait=False, cancel_futures=True)
        if self.pictures is not None:
            self.pictures.close()
        if self.template is not None:
            self.template.close()

    def check_name(self, name: str | None) -> None:
        """Refuse the name of another model; None is this one. Raises `ApiError`."""
        known = name is None or name in self.names or self.adapters.find(name) is not None
        if name is not None and not known and not self.any_name:
            raise ApiError(
                404,
                f"the model {name[:80]!r} does not exist; this server has {self.name!r}, and takes any name where it"
                " is started with --alias '*'",
                param="model",
                code="model_not_found",
            )

    @cached_property
    def vocabulary(self) -> GrammarVocabulary:
        """The vocabulary of grammars; making one takes time, so ask for it on another thread than the event loop's."""
        return GrammarVocabulary(self.tokenizer) if self.chat is None else self.chat.vocabulary

    async def aside(self, work: Callable[[], T]) -> T:
        """Work on one of two threads: rendering and tokenizing take too long for the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, work)

    async def tokens_of_text(self, text: str, param: str = "prompt", add_special: bool = True) -> list[int]:
        """Token ids of a text. Raises `ApiError` for one that cannot fit or that the vocabulary cannot express."""
        self.check_bytes(text, param)

        def encode() -> list[int]:
            return self.tokenizer.encode(text, add_special=add_special, parse_special=True)

        try:
            return await self.aside(encode)
        except TokenizerError as error:
            raise invalid(str(error), param) from None

    def beginning(self, text: str) -> str:
        """The beginning of a text, which has all characters that as many tokens as the context holds can stand for."""
        return text[: self.n_ctx * self._longest_token] if self._longest_token else text

    def check_bytes(self, text: str, param: str) -> None:
        """Refuse, before it is tokenized, a text that no tokens of this vocabulary could fit into the context."""
        longest = self._longest_token
        if longest and len(text) > self.n_ctx * longest:
            raise too_long(len(text) // longest + 1, self.n_ctx, param, at_least=True)

    @cached_property
    def _longest_token(self) -> int:
        """Characters of text that one token can stand for; 0 where that has no bound, as with unknown tokens."""
        if self.tokenizer.kind != "gpt2":
            return 0
        return max(len(self.tokenizer.token_text(i)) for i in range(self.tokenizer.n_vocab))

    def check_fits(self, n_tokens: int, param: str, n_ctx: int | None = None) -> None:
        """Refuse a prompt that is empty, or that leaves no room for a token. Raises `ApiError`."""
        if not n_tokens:
            raise invalid("the prompt is empty; at least one token is needed", param, "empty_prompt")
        limit = min(self.n_ctx, n_ctx or self.n_ctx)
        if n_tokens >= limit:
            raise too_long(n_tokens, limit, param)


def fingerprint(*paths: Path) -> str:
    """A short name of files' contents and of this release's arithmetic. Of a file it has the size and 64 parts that are
    spread evenly: reading a large one takes minutes.
    """
    sizes = [path.stat().st_size for path in paths]
    digest = hashlib.blake2b(f"{numerics.VERSION} {' '.join(map(str, sizes))}".encode(), digest_size=6)
    for path, size in zip(paths, sizes, strict=True):
        with path.open("rb") as file:
            for i in range(_SAMPLES):
                file.seek(max(0, size - _SAMPLE_BYTES) * i // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()
