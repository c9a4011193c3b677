"""`Model`: a GGUF file ready to generate or to embed. `zinc_rt.load` makes one.

with zinc_rt.load("model.gguf") as model:
    for chunk in model.stream("Once upon a time", temperature=0):
        print(chunk.text, end="")
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, cast, overload

import numpy as np
import numpy.typing as npt

from zinc_rt.engine.engine import Engine, EngineError
from zinc_rt.engine.prompts import EmptyPrompt, PromptTooLong, check_ids
from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGUFFile
from zinc_rt.llm.embedding import Embedder, Pooling
from zinc_rt.llm.input_processor import (
    Asked,
    ChatOptions,
    Messages,
    Prompt,
    Prompts,
    Requests,
    is_ids,
    several,
    with_params,
)
from zinc_rt.llm.loaded import LoadedModel
from zinc_rt.llm.logits import LogitsRows
from zinc_rt.llm.many import Progress, counting, finished
from zinc_rt.mem.errors import MemoryPlanError
from zinc_rt.mem.plan import available_memory, format_bytes
from zinc_rt.models import ModelDefinition
from zinc_rt.numerics import PAGE_TOKENS
from zinc_rt.sampling.generation import Chunk, Generation
from zinc_rt.sampling.params import SamplingOverrides, SamplingParams
from zinc_rt.sampling.processors import LogitsProcessor, check_processors
from zinc_rt.scheduler.delivery import T
from zinc_rt.scheduler.engine_core import EngineCore
from zinc_rt.scheduler.in_process import CoreLock, SharedCore
from zinc_rt.scheduler.options import CoreOptions, Vocabulary
from zinc_rt.speculation.drafter import Drafter
from zinc_rt.utils.checks import path_text, show, true_or_false
from zinc_rt.utils.closing import Closing

if TYPE_CHECKING:
    from zinc_rt.llm.chat import ChatAnswer, ChatChunk
    from zinc_rt.text import Tokenizer

__all__ = ["EmptyPrompt", "Model", "ModelClosed", "PromptTooLong"]

_LOOK_SECONDS = 0.01
_PREFILL_MS = 2000.0
"""What a step of prompts alone may take; an interrupt waits for its end."""


class ModelClosed(EngineError):
    """The model was closed, before a call or while a generation ran."""


class Model(LoadedModel, Closing):
    """One model on one engine, ready to generate or to embed; made by `load`.

    Threads may share it. Generations that are asked for at the same time are computed together, `n_slots` of them at
    once, and the others wait; no text depends on that. Event loops use it through `AsyncModel`.

    Attributes for those who build on it, beside those of `LoadedModel`:
        requests, shared: what makes requests, and the core that computes them.
        embedder: makes vectors; None for a model that generates.
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
        super().__init__(file, definition, tokenizer, engine)
        self._notify, self._drafter = notify, drafter
        self.embedder: Embedder | None = None
        self._lock = CoreLock()  # held while a step runs, and while what it gave is read
        self.shared = SharedCore(self._lock, self._check_running)
        self.requests = Requests(tokenizer, self.n_ctx, self._compile, lambda: self.chat_format)
        self._rows = LogitsRows(engine, self.shared, self._lock, self._check_running)
        if pooling is None:
            # Nobody but the process itself waits for a step: prompts get larger ones than a server gives them, since
            # weights, those of experts above all, are then read for more rows.
            self.shared.serve(self.make_core(CoreOptions(max_prefill_ms=_PREFILL_MS)))
        else:
            self.embedder = Embedder(engine, tokenizer, self.info.n_embd, pooling, definition.projections)
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
            failed=self.shared.failed,
        )

    def _tell(self, line: str) -> None:
        if self._notify is not None:
            self._notify(line)

    def close(self) -> None:
        """Give back the memory and the file, and end the process that renders chat templates. From another thread this
        waits for the step that runs; the generation it belongs to ends with `ModelClosed`.

        Raises `EngineError` where a function that a step calls closes the model.
        """
        with self._lock:
            self.shared.check_no_turn()
            self._closed = True
            try:
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
        self._check_open()
        if self.embedder is None:
            raise UsageError("the model is loaded to generate; load it with embeddings=True to embed texts")
        if not isinstance(texts, Iterable) or isinstance(texts, bytes | Mapping):
            raise UsageError(f"texts is {show(texts)}; give a list of texts or of lists of token ids, or one of them")
        true_or_false("normalize", normalize)
        given = texts if isinstance(texts, str) else list(texts)
        if alone := isinstance(given, str) or is_ids(given):
            given = [cast("Prompt", given)]
        with self._lock:
            self._check_running()
            vectors = self.embedder.embed(cast("list[Prompt]", given), normalize=normalize, dimensions=dimensions)
        return vectors[0] if alone else vectors

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
        ids = self._fitting(tokens)
        n_bytes, free = 4 * len(ids) * self.n_vocab, available_memory()
        if free is not None and n_bytes > free:
            raise MemoryPlanError(
                f"the logits of {len(ids)} tokens take {format_bytes(n_bytes)}, {format_bytes(free)} are free;"
                " take them a part at a time, from logits_in_parts"
            )
        out = np.empty((len(ids), self.n_vocab), np.float32)
        for start, part in self._rows.parts(ids):
            out[start : start + len(part)] = part
        return out

    def logits_in_parts(self, tokens: Sequence[int]) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """The rows of `logits` in order, a step's worth at a time: (index of the first, f32[some, n_vocab]).

        Each part is valid until the next is asked for. Raises what `logits` raises.
        """
        return self._rows.parts(self._fitting(tokens))

    def _fitting(self, tokens: Sequence[int]) -> list[int]:
        self.check_ready()
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
        prompts = several(prompt)
        if prompts is None:
            one, chosen = cast("Prompt", prompt), cast("SamplingParams | None", params)
            return Generation.collect(self.stream(one, chosen, logits_processors=logits_processors, **overrides))
        self.check_ready()
        asked = self.requests.several(prompts, params, logits_processors, overrides)
        found = dict(self._each(asked, prompts, progress))
        return [found[number] for number in range(len(asked))]

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
        functions, plain = check_processors(logits_processors), self.requests.plain
        asked = (plain(prompt, own, functions, overrides) for prompt, own in with_params(prompts, params))
        return self._each(asked, prompts, progress)

    def _each(
        self, asked: Iterable[Asked[Chunk]], prompts: object, progress: Progress
    ) -> Generator[tuple[int, Generation]]:
        """See `generate_each`."""
        with (
            counting(progress, prompts) as tell,
            closing(finished(self.shared, asked, self.engine.options.n_slots)) as texts,
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
        return self._stream(self.requests.plain(prompt, params, logits_processors, overrides))

    def _stream(self, asked: Asked[T]) -> Generator[T]:
        try:
            yield from self.shared.pieces(self.shared.submit(asked.submit, asked.text, asked.processors))
        finally:
            self.shared.leave(asked.submit.id)

    def chat(self, messages: Messages, **options: Unpack[ChatOptions]) -> ChatAnswer:
        """The whole answer to a conversation; arguments and errors as for `chat_stream`."""
        from zinc_rt.llm.chat import ChatAnswer

        return ChatAnswer.collect(self.chat_stream(messages, **options), options.get("response_format"))

    def chat_stream(self, messages: Messages, **options: Unpack[ChatOptions]) -> Generator[ChatChunk]:
        """Answer a conversation, token by token: reasoning, content and tool calls apart.

        Args:
            messages: the conversation in OpenAI's form; a text alone is one message of the user, and a last message of
                the assistant is continued.
            tools, tool_choice, parallel_tool_calls, response_format, variables: see `requests.ChatFields`.
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
        return self._stream(self.requests.chat(messages, options))

    def check_ready(self) -> None:
        """Raises `ModelClosed`, `FileChanged`, and `UsageError` for a model that was loaded to embed."""
        self._check_open()
        self._check_generates()

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

    def cached_tokens(self, prompt: Sequence[int]) -> int:
        """How many of a prompt's first tokens need not be computed, as the keys and values of a text that begins alike
        are still there; all but its last token at most. A model with recurrent layers goes on at a checkpoint.

        Raises `UsageError` for models loaded to embed.
        """
        self._check_generates()
        with self._lock:
            return self.shared.core.cached_tokens(prompt)

    def save_state(self, path: str | Path, prompt: Prompt) -> int:
        """Write what the model keeps of a text to a file, so that it is computed once: `load_state` reads it.

        The text is computed now as far as it is not there. A file fits any device and any number of threads; keys and
        values take most of it, as many bytes a token as the KV cache does.

        Args:
            path: the file; whole or not there, whatever happens.
            prompt: a text or token ids, as for `generate`.

        Returns:
            How many of its tokens the file holds: whole pages of 16.

        Raises:
            EngineError: fewer than 16 tokens, too many, or the file cannot be written.
            EmptyPrompt, TokenOutOfRange, UsageError, FileChanged, ModelClosed: as `generate`.
        """
        from zinc_rt.engine import prompt_cache_file as saved_text

        ids = self._fitting(self.tokenize(prompt) if isinstance(prompt, str) else prompt)
        sha256, edge = self._sha256(), len(ids) // PAGE_TOKENS * PAGE_TOKENS
        with self._lock, self._rows.borrowed(ids, edge, edge) as slot:
            self.engine.checkpoint(slot)
            return saved_text.save(self.engine, slot, Path(path_text("path", path)), sha256, self.name)

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
        from zinc_rt.engine import prompt_cache_file as saved_text

        self._check_open()
        self._check_generates()
        saved = saved_text.read(Path(path_text("path", path)))
        ids = saved_text.fitting(saved, self.engine, self._sha256(), self.tokenizer.n_vocab)
        with self._lock, self._rows.borrowed(ids, 0, len(ids)) as slot:
            saved_text.load(self.engine, slot, saved, ids)
        return ids

    def _sha256(self) -> str:
        """Of the file's contents; found in the folder of compiled kernels from the second time on."""
        from zinc_rt.lang.cache import default_cache_dir

        return self.file.sha256(self.engine.options.cache_dir or default_cache_dir())
