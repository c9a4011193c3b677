"""`Model`: a GGUF file ready to generate or to embed. `zinc_rt.load` makes one.

with zinc_rt.load("model.gguf") as model:
    for chunk in model.stream("Once upon a time", temperature=0):
        print(chunk.text, end="")
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, Unpack, cast, overload

import numpy as np
import numpy.typing as npt

from zinc_rt.adapters.slots import AdapterInfo, AdapterSlots
from zinc_rt.backends.devices import Device
from zinc_rt.engine.engine import Engine, EngineError
from zinc_rt.engine.prompts import EmptyPrompt, PromptTooLong, check_ids
from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import Graph
from zinc_rt.llm.adapters import Adapters, chosen
from zinc_rt.llm.embedding import Embedder, Pooling
from zinc_rt.llm.guard import ModelClosed, ModelGuard
from zinc_rt.llm.input_processor import (
    ChatOptions,
    InputProcessor,
    Messages,
    PreparedRequest,
    Prompt,
    Prompts,
    is_ids,
    prompt_list,
    with_params,
)
from zinc_rt.llm.logits import LogitsRows
from zinc_rt.llm.many import Progress, counting, finished
from zinc_rt.llm.ranking import NO_RANKER, RankedText, Ranker, ranked
from zinc_rt.mem.errors import MemoryPlanError
from zinc_rt.mem.plan import MemoryPlan
from zinc_rt.models import ModelDefinition, ModelInfo
from zinc_rt.numerics import PAGE_TOKENS
from zinc_rt.sampling.generation import Chunk, Generation
from zinc_rt.sampling.params import SamplingOverrides, SamplingParams
from zinc_rt.sampling.processors import LogitsProcessor, check_processors
from zinc_rt.scheduler.engine_core import EngineCore
from zinc_rt.scheduler.in_process import CoreLock, InProcessClient
from zinc_rt.scheduler.messages import Grammar
from zinc_rt.scheduler.options import CoreOptions, CoreVocabulary
from zinc_rt.scheduler.output import T
from zinc_rt.speculation.drafter import Drafter
from zinc_rt.text.pairs import PairPrompt
from zinc_rt.utils.checks import path_text, show, true_or_false, whole_numbers
from zinc_rt.utils.closing import Closing

if TYPE_CHECKING:
    from zinc_rt.grammar.matcher import LlguidanceMatcher
    from zinc_rt.grammar.vocabulary import GrammarVocabulary
    from zinc_rt.llm.chat import ChatAnswer, ChatChunk, ChatFormat
    from zinc_rt.text import ChatTemplate, Tokenizer
    from zinc_rt.vision.picture import PictureSource
    from zinc_rt.vision.projector import Projector
    from zinc_rt.vision.shown import PictureReader

__all__ = ["EmptyPrompt", "Model", "ModelClosed", "PromptTooLong"]

R = TypeVar("R")

_PREFILL_MS = 2000.0
"""What a step of prompts alone may take; an interrupt waits for its end."""


class Model(Closing):
    """One model on one engine, ready to generate or to embed; made by `load`.

    Threads may share it. Generations that run at the same time are computed together, `n_slots` of them at once; the
    others wait. No text depends on that. Event loops use it through `AsyncModel`.

    Attributes:
        name: `general.name`, or the file's name without its ending.
        file: the GGUF file, open.
        info: architecture and sizes.
        graph: the operations of a step.
        tokenizer: text to token ids and back.
        engine: the device with the model on it.
        input_processor, client: the first makes requests, the second has them computed.
        embedder: makes vectors; None for a model that generates.
        ranker: makes scores; None for a model that does not rank.
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
        projector: Projector | None = None,
        adapters: AdapterSlots | None = None,
    ) -> None:
        self.file = file
        self.info: ModelInfo = definition.info
        self.graph: Graph = definition.graph
        self.tokenizer = tokenizer
        self.engine = engine
        name = file.metadata.get("general.name")
        self.name = name if isinstance(name, str) and name else Path(file.path).stem
        self._origin = self  # the model that was loaded, of which this one may be a copy
        self._guard = ModelGuard(file)
        self._notify, self._drafter, self._projector = notify, drafter, projector
        self._adapters = adapters
        self.embedder: Embedder | None = None
        self.ranker: Ranker | None = None
        self._lock = CoreLock()  # held while a step runs, and while what it gave is read
        self.client = InProcessClient(self._lock, self._guard.check_running)
        self.input_processor = InputProcessor(
            tokenizer, self.client.check_prompt, self._compile, lambda: self.chat_format
        )
        if adapters is not None:
            self.input_processor.adapters = adapters.defaults
        self._rows = LogitsRows(
            engine, self.client, self._lock, self._guard.check_running, self.input_processor.adapters
        )
        if pooling is None:
            # Nobody but the process itself waits for a step: prompts get larger ones than a server gives them, since
            # weights, those of experts above all, are then read for more rows.
            self.client.serve(self.make_core(CoreOptions(max_prefill_ms=_PREFILL_MS)))
        else:
            self.embedder = Embedder(engine, tokenizer, self.info.n_embd, pooling, definition.pooled_layers)
        if self.embedder is not None and definition.ranking is not None:
            prompt = PairPrompt.from_metadata(file.metadata, tokenizer)
            self.ranker = Ranker(self.embedder, definition.ranking, prompt)

    def __repr__(self) -> str:
        if self._guard.closed:
            return f"<Model {self.name!r}, closed>"
        does = "ranks" if self.ranker is not None else "generates" if self.engine.generates else "embeds"
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
        if self._origin is not self:
            return self._origin.chat_template
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
        """The text of one token; U+FFFD stands for bytes that are no whole character. Raises `TokenizerError`."""
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """What a token adds to a text; the name of a special token. Raises `TokenizerError`."""
        return self.tokenizer.token_bytes(token_id)

    @cached_property
    def grammar_vocabulary(self) -> GrammarVocabulary:
        """The tokens' bytes, as grammars need them."""
        if self._origin is not self:
            return self._origin.grammar_vocabulary
        from zinc_rt.grammar.vocabulary import GrammarVocabulary

        return GrammarVocabulary(self.tokenizer)

    def _compile(self, grammar: Grammar) -> LlguidanceMatcher:
        """A grammar's matcher. Raises `GrammarError`."""
        from zinc_rt.grammar.matcher import compile_grammar

        return compile_grammar(grammar, self.grammar_vocabulary)

    @cached_property
    def chat_format(self) -> ChatFormat:
        """How the model converses: template, dialect, tokens. Raises `ChatTemplateMissing`."""
        if self._origin is not self:
            return self._origin.chat_format
        from zinc_rt.llm.chat import ChatFormat

        read = None
        if self.picture_reader is not None:
            from zinc_rt.llm.pictures import reading

            read = reading(self.picture_reader)
        return ChatFormat(self.tokenizer, self.chat_template, self.grammar_vocabulary, read)

    @cached_property
    def picture_reader(self) -> PictureReader | None:
        """Reads the pictures of conversations; None for a model without a projector."""
        if self._projector is None:
            return None
        from zinc_rt.vision.shown import PictureReader

        return PictureReader(self._projector.tower, self._projector.file.identity)

    @property
    def projector(self) -> Projector | None:
        """What makes rows of pictures; None for a model that reads none."""
        return self._projector

    @property
    def stamps(self) -> list[list[int]]:
        """`GGUFFile.stamps` of the model's file, and of its projector's behind them."""
        return [*self.file.stamps, *(self._projector.file.stamps if self._projector is not None else ())]

    def projector_sha256(self, folder: Path | None = None) -> str:
        """`GGUFFile.sha256` of the projector's file, empty for none."""
        return "" if self._projector is None else self._projector.file.sha256(folder)

    def make_core(self, options: CoreOptions | None = None) -> EngineCore:
        """A core on the model's engine, in place of the one that the model itself uses: for servers. Closing it closes
        the model.

        Raises `UsageError` for models loaded to embed.
        """
        self._check_generates()
        vocabulary = CoreVocabulary(self.tokenizer.n_vocab, self.tokenizer.stop_ids, self._compile)
        return EngineCore(
            self.engine,
            vocabulary,
            options,
            notify=self._tell,
            close=self.close,
            drafter=self._drafter,
            failed=self.client.failed,
            projector=self._projector,
            adapters=self._adapters,
        )

    def _tell(self, line: str) -> None:
        if self._notify is not None:
            self._notify(line)

    def close(self) -> None:
        """Give back the memory and the file, and end the process that renders chat templates. From another thread this
        waits for the step that runs; the generation it belongs to ends with `ModelClosed`.

        Raises `EngineError` where a function that a step calls closes the model.
        """
        if self._origin is not self:
            self._origin.close()
            return
        with self._lock:
            self.client.check_no_turn()
            self._guard.closed = True
            try:
                if self._projector is not None:
                    self._projector.close()
                if self._drafter is not None:
                    self._drafter.close()
                self.engine.close()
            finally:
                self.file.close()
                if "chat_template" in vars(self):
                    self.chat_template.close()

    def embed(
        self, texts: Prompt | Iterable[Prompt], *, normalize: bool = True, dimensions: int | None = None
    ) -> npt.NDArray[np.float32]:
        """Vectors of texts, for models loaded to embed.

        Args:
            texts: one text or several, or token ids of each.
            normalize: give each vector the length 1.
            dimensions: keep so many numbers of each vector, for models that allow it.

        Returns:
            f32[n_embd] of one text, f32[n_texts, n_embd] of several, in their order; with dimensions, so many in place
            of n_embd.

        Raises:
            UsageError: an argument is wrong, or the model was loaded to generate.
            EngineError, TokenizerError: a text cannot be computed.
            FileChanged, ModelClosed: the model, or its file, is gone.
        """
        self._guard.check_open()
        if self.embedder is None:
            raise UsageError("the model is loaded to generate; load it with embeddings=True to embed texts")
        if self.ranker is not None:
            raise UsageError("the model ranks texts and embeds none; use Model.rerank (`zinc rerank`, /v1/rerank)")
        if not isinstance(texts, Iterable) or isinstance(texts, bytes | Mapping):
            raise UsageError(f"texts is {show(texts)}; give a list of texts or of lists of token ids, or one of them")
        true_or_false("normalize", normalize)
        given = texts if isinstance(texts, str) else list(texts)
        if alone := isinstance(given, str) or is_ids(given):
            given = [cast("Prompt", given)]
        with self._lock:
            self._guard.check_running()
            vectors = self.embedder.embed(cast("list[Prompt]", given), normalize=normalize, dimensions=dimensions)
        return vectors[0] if alone else vectors

    def rerank(self, query: str, texts: Iterable[str], *, top_n: int | None = None) -> list[RankedText]:
        """Texts in order of how well they answer a query, for models that rank.

        Args:
            query: a question, or what is looked for.
            texts: any number of them.
            top_n: the best so many; None for all.

        Returns:
            The best text first, each with its score and its number among `texts`.

        Raises:
            UsageError: an argument is wrong, or the model does not rank.
            EngineError, TokenizerError: a text cannot be computed, as one that is too long with the query.
            FileChanged, ModelClosed: the model, or its file, is gone.
        """
        self._guard.check_open()
        if self.ranker is None:
            raise UsageError(f"a model of architecture {self.architecture!r} {NO_RANKER}")
        if not isinstance(texts, Iterable) or isinstance(texts, str | bytes | Mapping):
            raise UsageError(f"texts is {show(texts)}; give a list of texts")
        given = list(texts)
        pairs = self.ranker.pairs(query, given)
        with self._lock:
            self._guard.check_running()
            scores = self.ranker.scores(pairs)
        return ranked(given, scores, top_n)

    def image_embeddings(self, picture: PictureSource) -> npt.NDArray[np.float32]:
        """The rows that stand for a picture in a text, for models loaded with a projector (`mmproj`).

        Args:
            picture: a path, the bytes of a file (PNG, JPEG, GIF, BMP or WebP), an array uint8[height, width, 3] or a
                Pillow image.

        Returns:
            f32[n_rows, n_embd * (1 + deepstack layers)]: the row that stands for an embedding, then those that are
            added behind the first layers.

        Raises:
            PictureError: the picture cannot be read, or is beyond a limit.
            UsageError: the model was loaded without a projector.
            ModelClosed: the model is gone.
        """
        self._guard.check_open()
        if self._projector is None:
            raise UsageError("the model was loaded without a projector; load it with mmproj=FILE to read pictures")
        from zinc_rt.vision.picture import read_picture

        shown = read_picture(picture)
        with self._lock:
            self._guard.check_running()
            if (busy := self._projector.working) is not None:  # with a picture of a request that runs
                busy.advance(math.inf)
            return self._projector.rows(shown)

    def logits(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
        """Logits after each token.

        Args:
            tokens: ids, as `tokenize` gives them.

        Returns:
            f32[n_tokens, n_vocab]: row i belongs to what follows token i.

        Raises:
            EmptyPrompt, EngineError, TokenOutOfRange: the tokens cannot be computed.
            UsageError: they are no whole numbers, or the model was loaded to embed.
            MemoryPlanError: there is not enough memory for all rows.
            ModelClosed, FileChanged, BackendError.
        """
        return self._rows.whole(self._fitting(tokens), self.n_vocab)

    def logits_in_parts(self, tokens: Sequence[int]) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """The rows of `logits` in order, a step's worth at a time: (index of the first, f32[some, n_vocab]).

        Each part is valid until the next is asked for. Raises what `logits` raises.
        """
        return self._rows.parts(self._fitting(tokens))

    def _fitting(self, tokens: Sequence[int], *, pictures: bool = False) -> list[int]:
        """pictures: rows of pictures that the engine knows are tokens, too."""
        self.check_ready()
        store = self.engine.cache.pictures
        if pictures and store is not None:
            ids = whole_numbers("token ids", tokens)
            store.pictures_of(ids)
            check_ids(ids, self.tokenizer.n_vocab, pictures=True)
        else:
            ids = check_ids(tokens, self.tokenizer.n_vocab)
        if len(ids) > self.n_ctx:
            raise EngineError(
                f"{len(ids)} tokens do not fit the context of {self.n_ctx} tokens; load with a larger n_ctx"
            )
        return ids

    @overload
    def generate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        logits_processors: Iterable[LogitsProcessor] = (),
        **overrides: Unpack[SamplingOverrides],
    ) -> Generation: ...
    @overload
    def generate(
        self,
        prompt: Prompts,
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        logits_processors: Iterable[LogitsProcessor] = (),
        progress: Progress = False,
        **overrides: Unpack[SamplingOverrides],
    ) -> list[Generation]: ...

    def generate(
        self,
        prompt: Prompt | Prompts,
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        logits_processors: Iterable[LogitsProcessor] = (),
        progress: Progress = False,
        **overrides: Unpack[SamplingOverrides],
    ) -> Generation | list[Generation]:
        """The whole text behind a prompt, or the texts behind several, which are computed together.

        Args:
            prompt: as for `stream`; or a list of prompts. Each of their texts is what it would be alone.
            params: as for `stream`; with several prompts, maybe a list, one for each.
            logits_processors, overrides: as for `stream`, and the same for all prompts.
            progress: of several prompts, True to show on standard error how many texts are whole, or a function that
                gets this number and that of all.

        Returns:
            A `Generation`; of a list of prompts a list of them, in the same order.

        Raises:
            What `stream` raises and what iterating over it raises.
        """
        prompts = prompt_list(prompt)
        if prompts is None:
            one, chosen = cast("Prompt", prompt), cast("SamplingParams | None", params)
            self.check_ready()
            return self._whole(self.input_processor.text(one, chosen, logits_processors, overrides), Generation.collect)
        self.check_ready()
        requests = self.input_processor.texts(prompts, params, logits_processors, overrides)
        found = dict(self._each(requests, prompts, progress))
        return [found[number] for number in range(len(requests))]

    def generate_each(
        self,
        prompts: Iterable[Prompt],
        params: SamplingParams | Iterable[SamplingParams] | None = None,
        *,
        logits_processors: Iterable[LogitsProcessor] = (),
        progress: Progress = False,
        **overrides: Unpack[SamplingOverrides],
    ) -> Generator[tuple[int, Generation]]:
        """The texts behind any number of prompts, each as soon as it is whole.

        Args:
            prompts: read as they are needed: no more than `n_slots` texts are computed, and kept, at a time.
            params: as for `stream`, or one for each prompt, which are read alike.
            logits_processors, overrides: as for `stream`, and the same for all prompts.
            progress: as for `generate`.

        Returns:
            An iterator of (number of the prompt from 0, its `Generation`), in the order in which texts end. Closing it
            ends the texts that are computed.

        Raises:
            While iterating what `stream` and iterating over that raise, with a note of the prompt's number.
        """
        self.check_ready()
        if isinstance(prompts, str | bytes | Mapping) or not isinstance(prompts, Iterable):
            raise UsageError(f"prompts is {show(prompts)}; give an iterable of texts or of lists of token ids")
        functions, prepare = check_processors(logits_processors), self.input_processor.text
        requests = (prepare(prompt, own, functions, overrides) for prompt, own in with_params(prompts, params))
        return self._each(requests, prompts, progress)

    def _each(
        self, requests: Iterable[PreparedRequest[Chunk]], prompts: object, progress: Progress
    ) -> Generator[tuple[int, Generation]]:
        """See `generate_each`."""
        with (
            counting(progress, prompts) as tell,
            closing(finished(self.client, requests, self.engine.options.n_slots)) as texts,
        ):
            for done, text in enumerate(texts, 1):
                tell(done)
                yield text

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        logits_processors: Iterable[LogitsProcessor] = (),
        **overrides: Unpack[SamplingOverrides],
    ) -> Generator[Chunk]:
        """Generate after a prompt, chunk by chunk. All arguments are checked before the first chunk is asked for.

        Args:
            prompt: a text, or token ids as they are. A chat's messages go to `chat` and `chat_stream`.
            params: how to choose tokens and when to end; None for the defaults.
            logits_processors: functions that get the token ids so far and the logits f32[n_vocab] before each token,
                and return logits in their place; see `sampling.processors`.
            overrides: fields of `SamplingParams` by name, in place of those of params.

        Returns:
            An iterator of chunks, a token each, and a last one with `finish_reason`, `stats` and `seed`. Closing it
            ends the text.

        Raises:
            EmptyPrompt, PromptTooLong, TokenOutOfRange: the prompt cannot be computed.
            InvalidSamplingParam, UnknownParameter: a parameter is wrong.
            UsageError: another argument is wrong, or the model was loaded to embed.
            ModelClosed, FileChanged: the model, or its file, is gone.
            While iterating also what a processor raises, `DegenerateLogits` and `BackendError`.
        """
        self.check_ready()
        return self._stream(self.input_processor.text(prompt, params, logits_processors, overrides))

    def _stream(self, request: PreparedRequest[T]) -> Generator[T]:
        try:
            yield from self.client.pieces(self.client.submit(request.output, request.processors))
        finally:
            self.client.leave(request.output.request.id)

    def _whole(self, request: PreparedRequest[T], collect: Callable[[list[T]], R]) -> R:
        """What is collected of all pieces of a request."""
        try:
            return collect(self.client.whole(self.client.submit(request.output, request.processors)))
        finally:
            self.client.leave(request.output.request.id)

    def chat(self, messages: Messages, **options: Unpack[ChatOptions]) -> ChatAnswer:
        """The whole answer to a conversation; arguments and errors as for `chat_stream`."""
        from zinc_rt.llm.chat import ChatAnswer

        self.check_ready()
        request, form = self.input_processor.chat(messages, options), options.get("response_format")
        return self._whole(request, lambda chunks: ChatAnswer.collect(chunks, form))

    def chat_stream(self, messages: Messages, **options: Unpack[ChatOptions]) -> Generator[ChatChunk]:
        """Answer a conversation, token by token: reasoning, content and tool calls apart.

        Args:
            messages: the conversation in OpenAI's form; a text alone is one message of the user, and a last message of
                the assistant is continued.
            tools, tool_choice, parallel_tool_calls, response_format, variables: see `input_processor.ChatFields`.
            params, logits_processors, and fields of `SamplingParams` by name: as for `stream`. Stop strings are looked
                for in the content alone.

        Returns:
            An iterator of `ChatChunk`, a token each; closing it ends the answer.

        Raises:
            RequestError, GrammarError: a message, a tool, a schema or another field is wrong.
            ChatTemplateError: the model's template refuses the conversation; `ChatTemplateMissing`: it has none.
            What `stream` raises. All arguments are checked before the first chunk is asked for.
        """
        self.check_ready()
        return self._stream(self.input_processor.chat(messages, options))

    def check_ready(self) -> None:
        """Raises `ModelClosed`, `FileChanged`, and `UsageError` for a model that was loaded to embed."""
        self._guard.check_open()
        self._check_generates()

    def _check_generates(self) -> None:
        """Raises `UsageError` where the model ends with hidden states."""
        if self.embedder is not None:
            if self.ranker is not None:
                raise UsageError("the model ranks texts and generates none; use Model.rerank (`zinc rerank`)")
            only = f"architecture {self.architecture!r} generates none"
            advice = only if self.engine.whole_sequences else "load it with embeddings=False to generate"
            raise UsageError(f"the model is loaded to embed texts; {advice}")

    def with_adapter(self, adapters: Adapters, scale: float = 1.0) -> Model:
        """The same model for texts with other adapters: its `generate`, `chat`, `logits` and so on have them. Closing
        it closes the model.

        Args:
            adapters: a name, a list of names, or scales by name; None for the model without adapters.
            scale: of what those add that come without one; 0 for nothing.

        Raises:
            UnknownAdapter: no adapter of a name is loaded.
            UsageError: an argument is wrong.
            ModelClosed, FileChanged: as `generate`.
        """
        self.check_ready()
        wanted = chosen(adapters, scale)
        with self._lock, self.client.core.adapted(wanted):
            made = copy(self)
        for name in ("input_processor", "_rows"):
            own = copy(getattr(self, name))
            own.adapters = lambda: wanted
            setattr(made, name, own)
        return made

    @property
    def adapters(self) -> list[AdapterInfo]:
        """The adapters that are loaded."""
        return [] if self._adapters is None else self._adapters.loaded

    def load_adapter(self, path: str | Path, name: str | None = None, scale: float = 0.0) -> None:
        """Load an adapter into room that `lora_slots` made.

        Args:
            path: its file.
            name: None for that of the file.
            scale: of what it adds to texts for which no adapter is chosen; 0 for nothing.

        Raises:
            AdapterError, GGUFError: the file cannot be used, or not with this model.
            UsageError: there is no room, or the name is taken.
            ModelClosed, FileChanged: as `generate`.
        """
        self.check_ready()
        with self._lock:
            self.client.core.load_adapter(str(path_text("path", path)), name, scale)

    def unload_adapter(self, name: str) -> None:
        """Forget an adapter, once the texts that use it have ended. Raises `UnknownAdapter`, `UsageError`."""
        self.check_ready()
        with self._lock:
            self.client.core.unload_adapter(name)

    def cached_tokens(self, prompt: Sequence[int]) -> int:
        """How many of a prompt's first tokens need not be computed, as the keys and values of a text that begins alike
        are still there; all but its last token at most. A model with recurrent layers goes on at a checkpoint.

        Raises `UsageError` for models loaded to embed.
        """
        self._check_generates()
        with self._lock, self.client.core.adapted(self.input_processor.adapters()) as (_, salt):
            return self.client.core.cached_tokens(prompt, salt)

    def save_state(self, path: str | Path, prompt: Prompt) -> int:
        """Write what the model keeps of a text to a file, so that it is computed once: `load_state` reads it.

        The text is computed now as far as it is not there. A file fits any device and any number of threads; keys and
        values take most of it, as many bytes a token as the KV cache does.

        Args:
            path: the file; whole or not there, whatever happens.
            prompt: a text or token ids, as for `generate`; also those of a chat with pictures that was answered.

        Returns:
            How many of its tokens the file holds: whole pages of 16.

        Raises:
            EngineError: fewer than 16 tokens, too many, or the file cannot be written.
            EmptyPrompt, TokenOutOfRange, UsageError, FileChanged, ModelClosed: as `generate`.
        """
        from zinc_rt.engine import prompt_cache_file

        self._check_plain("save_state")
        ids = self._fitting(self.tokenize(prompt) if isinstance(prompt, str) else prompt, pictures=True)
        sha256, edge = self._sha256(), len(ids) // PAGE_TOKENS * PAGE_TOKENS
        with self._lock, self._rows.sequence_holding(ids, edge, edge) as (seq_id, _):
            self.engine.cache.checkpoint(seq_id)
            return prompt_cache_file.save(self.engine, seq_id, Path(path_text("path", path)), sha256, self.name)

    def load_state(self, path: str | Path) -> list[int]:
        """Read a file of `save_state`: prompts that begin with its text need not compute it. No text changes by that.

        Args:
            path: a file that this model wrote, on any device, with the same format of the KV cache.

        Returns:
            The text's token ids.

        Raises:
            EngineError: the file cannot be read, is damaged, or is of another model or format, or its text leaves no
                room in the context.
            UsageError, FileChanged, ModelClosed: as `generate`.
        """
        from zinc_rt.engine import prompt_cache_file

        self.check_ready()
        self._check_plain("load_state")
        saved = prompt_cache_file.read(Path(path_text("path", path)))
        ids = prompt_cache_file.checked_tokens(saved, self.engine, self._sha256(), self.tokenizer.n_vocab)
        with self._lock, self._rows.sequence_holding(ids, 0, len(ids)) as (seq_id, _):
            prompt_cache_file.load(self.engine, seq_id, saved, ids)
        return ids

    def _check_plain(self, name: str) -> None:
        """Raises `UsageError` where texts have adapters: a file does not say which."""
        if self.input_processor.adapters():
            raise UsageError(f"{name} is for texts without adapters; use it on Model.with_adapter(None)")

    def _sha256(self) -> str:
        """Of the file's contents; found in the folder of compiled kernels from the second time on."""
        from zinc_rt.lang.cache import default_cache_dir

        return self.file.sha256(self.engine.options.cache_dir or default_cache_dir())
