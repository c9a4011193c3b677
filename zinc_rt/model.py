"""`Model`: a GGUF file ready to generate or to embed. `zinc_rt.load` makes one.

with zinc_rt.load("model.gguf") as model:
    for chunk in model.stream("Once upon a time", temperature=0):
        print(chunk.text, end="")
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast, overload

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.devices import Device
from zinc_rt.checks import show, true_or_false, whole_numbers
from zinc_rt.chunks import ChunkMaker, PlainText, TokenText
from zinc_rt.embedding import Embedder, Pooling
from zinc_rt.engine import ContextFull, Engine, EngineError, Rows
from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import Graph
from zinc_rt.mem.errors import MemoryPlanError
from zinc_rt.mem.plan import MemoryPlan
from zinc_rt.models import ModelDefinition, ModelInfo
from zinc_rt.prompts import EmptyPrompt, PromptTooLong, check_fits, check_ids
from zinc_rt.sampling.generation import Chunk, Generation
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.sampler import Sampler
from zinc_rt.serving.core import CoreOptions, EngineCore, Vocabulary
from zinc_rt.serving.core.shared import SharedCore
from zinc_rt.serving.messages import Finished, Grammar, Submit, Token
from zinc_rt.speculation.drafter import Drafter

if TYPE_CHECKING:
    from zinc_rt.chat import ChatAnswer, ChatChunk, ChatFormat, ReadTokens
    from zinc_rt.grammar.matcher import Matcher
    from zinc_rt.grammar.vocabulary import GrammarVocabulary
    from zinc_rt.text import ChatTemplate, Tokenizer

__all__ = ["EmptyPrompt", "Model", "ModelClosed", "PromptTooLong"]

_LOOK_SECONDS = 0.01
_PREFILL_MS = 2000.0
"""What a step of prompts alone may take; an interrupt waits for its end."""

Prompt = str | Sequence[int]
Prompts = list[str] | list[list[int]] | list[Prompt] | tuple[Prompt, ...]


class ModelClosed(EngineError):
    """The model was closed, before a call or while a generation ran."""


class Model:
    """One model on one engine; made by `load`.

    Threads may share it. Generations that are asked for at the same time are computed together, `n_slots` of them at
    once, and the others wait; no text depends on that.
    """

    def __init__(
        self,
        file: GGUFFile,
        definition: ModelDefinition,
        tokenizer: Tokenizer,
        engine: Engine,
        notify: Callable[[str], None] | None = None,
        pooling: Pooling | None = None,
        drafter: Drafter | None = None,
    ) -> None:
        self._notify, self._drafter = notify, drafter
        self.file = file
        self.info: ModelInfo = definition.info
        self.graph: Graph = definition.graph
        self.tokenizer = tokenizer
        self.engine = engine
        self.embedder: Embedder | None = None
        self._lock = threading.RLock()  # held while a step runs, and while what it gave is read
        self._shared = SharedCore(self._lock, self._check_running)
        self._numbers = itertools.count()  # of requests
        if pooling is None:
            # Nobody but the process itself waits for a step: prompts get larger ones than a server gives them, since
            # weights, those of experts above all, are then read for more rows.
            self._shared.serve(self.make_core(CoreOptions(max_prefill_ms=_PREFILL_MS)))
        else:
            self.embedder = Embedder(engine, tokenizer, self.info.n_embd, pooling, definition.projections)
        self._closed = False
        self._looked = 0.0  # when the file was compared with what it was

    def make_core(self, options: CoreOptions | None = None) -> EngineCore:
        """A core on the model's engine, in place of the one that the model itself uses: for servers. Closing it closes
        the model.

        Raises `UsageError` for models loaded to embed.
        """
        self._check_generates()
        vocabulary = Vocabulary(self.tokenizer.n_vocab, self.tokenizer.stop_ids, self._compile)
        return EngineCore(
            self.engine,
            vocabulary,
            options,
            notify=self._tell,
            close=self.close,
            drafter=self._drafter,
            failed=self._shared.failed,
        )

    def _tell(self, line: str) -> None:
        if self._notify is not None:
            self._notify(line)

    def close(self) -> None:
        """Give back the memory and the file, and end the process that renders chat templates. From another thread this
        waits for the step that runs; the generation it belongs to ends with `ModelClosed`.
        """
        with self._lock:
            self._closed = True
            try:
                if self._drafter is not None:
                    self._drafter.close()
                self.engine.close()
            finally:
                self.file.close()
                if "chat_template" in vars(self):
                    self.chat_template.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def name(self) -> str:
        """`general.name`, or the file's name without its ending."""
        name = self.file.metadata.get("general.name")
        return name if isinstance(name, str) and name else Path(self.file.path).stem

    @property
    def architecture(self) -> str:
        """The GGUF architecture."""
        return self.info.architecture

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
        """Token ids of a text. add_special: BOS and EOS as the model wants them; parse_special: see control tokens.

        Raises `TokenizerError`, `UsageError` for what is neither True nor False.
        """
        true_or_false("add_special", add_special)
        true_or_false("parse_special", parse_special)
        return self.tokenizer.encode(text, add_special=add_special, parse_special=parse_special)

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens included. Raises `UsageError`, `TokenizerError`."""
        return self.tokenizer.decode(whole_numbers("token ids", ids))

    def embed(
        self, texts: Sequence[str | Sequence[int]], *, normalize: bool = True, dimensions: int | None = None
    ) -> npt.NDArray[np.float32]:
        """Vectors of texts, or of token ids, f32[n_texts, n_embd]: `Embedder.embed`. For models loaded to embed.

        Raises `UsageError`, `ContextFull`, `TokenizerError`, `FileChanged`, `ModelClosed`.
        """
        self._check_open()
        if self.embedder is None:
            raise UsageError("the model is loaded to generate; load it with embeddings=True to embed texts")
        if isinstance(texts, str):
            raise UsageError("texts is one str; give a list of them")
        if not isinstance(texts, Iterable) or isinstance(texts, bytes | Mapping):
            raise UsageError(f"texts is {show(texts)}; give a list of texts or of lists of token ids")
        true_or_false("normalize", normalize)
        with self._lock:
            self._check_running()
            return self.embedder.embed(list(texts), normalize=normalize, dimensions=dimensions)

    def logits(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
        """Logits after each token: f32[n_tokens, n_vocab].

        Raises `EmptyPrompt`, `ContextFull`, `TokenOutOfRange`, `UsageError`, `FileChanged`, `ModelClosed`.
        """
        ids = self._fitting(tokens)
        out = np.empty((len(ids), self.n_vocab), np.float32)
        for start, part in self._logits_in_parts(ids):
            out[start : start + len(part)] = part
        return out

    def logits_in_parts(self, tokens: Sequence[int]) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """The rows of `logits` in order, a step's worth at a time: (index of the first, f32[some, n_vocab]).

        Each part is valid until the next is asked for. Raises what `logits` raises.
        """
        return self._logits_in_parts(self._fitting(tokens))

    def _fitting(self, tokens: Sequence[int]) -> list[int]:
        self._check_open()
        self._check_generates()
        ids = self._checked(tokens)
        if len(ids) > self.n_ctx:
            raise ContextFull(
                f"{len(ids)} tokens do not fit the context of {self.n_ctx} tokens; load with a larger n_ctx"
            )
        return ids

    def _logits_in_parts(self, ids: list[int]) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        sizes = self.engine.sizes
        assert sizes is not None
        for start in range(0, len(ids), sizes.n_logits):
            part = ids[start : start + sizes.n_logits]
            with self._lock, self._borrowed(ids, start, start + len(part)) as slot:
                result = self.engine.step([Rows(slot, start, part, wanted=range(len(part)))])
            yield start, result.logits

    @contextmanager
    def _borrowed(self, ids: list[int], start: int, end: int) -> Iterator[int]:
        """A sequence that holds a text's first `start` tokens, with room for `end`. Between parts others may have taken
        what it held: that is computed again.
        """
        self._check_running()
        core = self._shared.core
        slot = core.borrow(ids[: start + 1], end)
        try:
            held, n_batch = self.engine.truncate(slot, start), self.engine.options.n_batch
            for at in range(held, start, n_batch):
                self._check_running()
                self.engine.step([Rows(slot, at, ids[at : min(at + n_batch, start)])])
            yield slot
        finally:
            core.give_back(slot)

    @overload
    def generate(self, prompt: Prompt, params: SamplingParams | None = None, **overrides: Any) -> Generation: ...
    @overload
    def generate(
        self,
        prompt: Prompts,
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        **overrides: Any,
    ) -> list[Generation]: ...

    def generate(
        self,
        prompt: Prompt | Prompts,
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        **overrides: Any,
    ) -> Generation | list[Generation]:
        """The whole text at once; arguments and errors as for `stream`.

        Of a list of prompts, a list of texts: they are computed together, and each is what it would be alone. params
        may be a list then, too, one for each prompt.
        """
        prompts = _several(prompt)
        if prompts is None:
            one = cast("Prompt", prompt)
            return Generation.collect(self.stream(one, cast("SamplingParams | None", params), **overrides))
        if params is None or isinstance(params, SamplingParams):
            chosen: Sequence[SamplingParams | None] = [params] * len(prompts)
        else:
            chosen = list(params)
        if len(chosen) != len(prompts):
            raise UsageError(f"there are {len(prompts)} prompts and {len(chosen)} params; give one for each prompt")
        self._check_open()
        self._check_generates()
        requests = [self._request(text, own, overrides) for text, own in zip(prompts, chosen, strict=True)]
        try:
            for request in requests:
                self._shared.submit(request)
            return [
                Generation.collect(self._chunks(request, PlainText(self.tokenizer, request.params.stop)))
                for request in requests
            ]
        finally:
            for request in requests:
                self._shared.leave(request.id)

    def stream(self, prompt: Prompt, params: SamplingParams | None = None, **overrides: Any) -> Generator[Chunk]:
        """Generate after a prompt (text, or token ids as they are), chunk by chunk.

        overrides: fields of `SamplingParams` by name. Everything is checked here, before the first chunk is asked for.
        Raises `EmptyPrompt`, `PromptTooLong`, `TokenOutOfRange`, `InvalidSamplingParam`, `UnknownParameter`,
        `UsageError` for a prompt that is neither text nor token ids, `ModelClosed`, `FileChanged`.
        """
        self._check_open()
        self._check_generates()
        request = self._request(prompt, params, overrides)
        return self._stream(request, PlainText(self.tokenizer, request.params.stop))

    def _request(self, prompt: Prompt, params: SamplingParams | None, overrides: Mapping[str, Any]) -> Submit:
        """A request, checked. Raises what `stream` raises."""
        chosen = SamplingParams.with_overrides(params, **overrides)
        sampler = Sampler(chosen, self.tokenizer.n_vocab)  # padding rows of the embedding are no tokens
        if isinstance(prompt, str) and not prompt:
            raise EmptyPrompt("the prompt is empty; give at least one character")
        ids = self._room(self.tokenize(prompt) if isinstance(prompt, str) else prompt)
        return self._submit(ids, chosen, sampler.seed)

    def _submit(self, ids: Sequence[int], params: SamplingParams, seed: int, grammar: Grammar | None = None) -> Submit:
        return Submit(str(next(self._numbers)), tuple(ids), params, seed, grammar=grammar)

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
        from zinc_rt.chat import ChatFormat

        return ChatFormat(self.tokenizer, self.chat_template, self.grammar_vocabulary)

    def chat(self, messages: Sequence[Mapping[str, Any]], **fields: Any) -> ChatAnswer:
        """The whole answer at once; arguments and errors as for `chat_stream`."""
        from zinc_rt.chat import ChatAnswer

        return ChatAnswer.collect(self.chat_stream(messages, **fields))

    def chat_stream(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        parallel_tool_calls: bool = True,
        response_format: Mapping[str, Any] | None = None,
        variables: Mapping[str, Any] | None = None,
        params: SamplingParams | None = None,
        **overrides: Any,
    ) -> Generator[ChatChunk]:
        """Answer a conversation in OpenAI's form, token by token: reasoning, content and tool calls apart.

        See `chat.ChatFormat.request` for the fields, `stream` for params and overrides. Stop strings are looked for in
        the content alone. Everything is checked here, before the first chunk is asked for.
        Raises `RequestError`, `GrammarError`, `ChatTemplateError`, and what `stream` raises.
        """
        from zinc_rt.chat import ReadTokens

        self._check_open()
        self._check_generates()
        chosen = SamplingParams.with_overrides(params, **overrides)
        form = self.chat_format
        request = form.request(
            messages,
            tools=tools,
            tool_choice=tool_choice,
            parallel_tool_calls=parallel_tool_calls,
            response_format=response_format,
            variables=variables,
        )
        sampler = Sampler(chosen, self.tokenizer.n_vocab)
        if request.grammar is not None:
            self._compile(request.grammar)
        text = ReadTokens(form.reader(request, chosen.stop, request.salt(sampler.seed)))
        asked = self._submit(self._room(request.prompt), chosen, sampler.seed, request.grammar)
        return self._chat(text, self._stream(asked, text))

    @staticmethod
    def _chat(text: ReadTokens, stream: Generator[Chunk]) -> Generator[ChatChunk]:
        from zinc_rt.chat import ChatChunk

        with closing(stream):
            for chunk in stream:
                yield ChatChunk(text.take(), chunk)

    def _room(self, prompt: Sequence[int]) -> list[int]:
        """A prompt's ids, with room for an answer. Raises `EmptyPrompt`, `PromptTooLong`, `TokenOutOfRange`."""
        ids = self._checked(prompt)
        check_fits(ids, self.n_ctx)
        return ids

    def _stream(self, request: Submit, text: TokenText) -> Generator[Chunk]:
        self._shared.submit(request)
        try:
            yield from self._chunks(request, text)
        finally:
            self._shared.leave(request.id)

    def _chunks(self, request: Submit, text: TokenText) -> Generator[Chunk]:
        """The chunks of a request that was submitted."""
        chunks = ChunkMaker(text, request)
        while True:
            event = self._shared.next(request.id)
            if isinstance(event, Token):
                yield chunks.token(event)
                if chunks.stopped:
                    event = self._shared.finish(request.id)
            if isinstance(event, Finished):
                yield chunks.last(event)
                return

    def _check_generates(self) -> None:
        """Raises `UsageError` where the model ends with hidden states."""
        if self.embedder is not None:
            only = f"architecture {self.architecture!r} generates none"
            advice = only if self.engine.whole_sequences else "load it with embeddings=False to generate"
            raise UsageError(f"the model is loaded to embed texts; {advice}")

    def _check_open(self) -> None:
        """Raises `ModelClosed`, and `FileChanged` when the model's file is another one by now."""
        if self._closed:
            raise ModelClosed("the model is closed; load it again")
        self._looked = time.perf_counter()
        self.file.check_unchanged()

    def _check_running(self) -> None:
        """Before a step, with the lock held.

        Raises `ModelClosed`, and `FileChanged`, which is looked for no more often than every 10 ms: steps may read from
        the mapped file, where a page that was cut off ends the process.
        """
        if self._closed:
            raise ModelClosed("the model was closed while it generated; load it again")
        if (now := time.perf_counter()) - self._looked > _LOOK_SECONDS:
            self._looked = now
            self.file.check_unwritten()

    def _checked(self, tokens: Sequence[int]) -> list[int]:
        """A prompt's ids, at least one. Raises `EmptyPrompt`, `TokenOutOfRange`, `UsageError`."""
        return check_ids(tokens, self.tokenizer.n_vocab)

    def cached_tokens(self, prompt: Sequence[int]) -> int:
        """How many of a prompt's first tokens need not be computed, as the keys and values of a text that begins alike
        are still there; all but its last token at most. A model with recurrent layers goes on at a checkpoint.

        Raises `UsageError` for models loaded to embed.
        """
        self._check_generates()
        with self._lock:
            return self._shared.core.cached_tokens(prompt)


def _several(prompt: Prompt | Prompts) -> list[Prompt] | None:
    """The prompts of a list of them; None for a single one."""
    if isinstance(prompt, list | tuple) and prompt and not isinstance(prompt[0], int | np.integer):
        return list(prompt)
    return None
