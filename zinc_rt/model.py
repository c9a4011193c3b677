"""`Model`: a GGUF file ready to generate or to embed. `zinc_rt.load` makes one.

with zinc_rt.load("model.gguf") as model:
    for chunk in model.stream("Once upon a time", temperature=0):
        print(chunk.text, end="")
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.devices import Device
from zinc_rt.checks import show, true_or_false, whole_numbers
from zinc_rt.embedding import Embedder, Pooling
from zinc_rt.engine import ContextFull, Engine, EngineError, Rows
from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import Graph
from zinc_rt.mem.errors import MemoryPlanError
from zinc_rt.mem.plan import MemoryPlan
from zinc_rt.models import ModelDefinition, ModelInfo
from zinc_rt.numerics import PAGE_TOKENS
from zinc_rt.prompts import EmptyPrompt, check_fits, known_tokens
from zinc_rt.sampling.generation import Chunk, Generation, Stats
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.request import SampledStep, SamplingRequest
from zinc_rt.sampling.sampler import Sampled, Sampler
from zinc_rt.sampling.stop import StopMatcher

if TYPE_CHECKING:
    from zinc_rt.text import ChatTemplate, Detokenizer, Tokenizer

_LOOK_SECONDS = 0.01


class ModelClosed(EngineError):
    """The model was closed, before a call or while a generation ran."""


class Model:
    """One model on one engine; made by `load`. Belongs to one thread and runs one generation at a time."""

    def __init__(
        self,
        file: GGUFFile,
        definition: ModelDefinition,
        tokenizer: Tokenizer,
        engine: Engine,
        notify: Callable[[str], None] | None = None,
        pooling: Pooling | None = None,
    ) -> None:
        self._notify = notify
        self.file = file
        self.info: ModelInfo = definition.info
        self.graph: Graph = definition.graph
        self.tokenizer = tokenizer
        self.engine = engine
        self.embedder: Embedder | None = None
        self._slot = -1
        if pooling is None:
            self._slot = engine.open_sequence()
        else:
            self.embedder = Embedder(engine, tokenizer, self.info.n_embd, pooling, definition.projections)
        self._busy = False
        self._closed = False
        self._looked = 0.0  # when the file was compared with what it was
        self._lock = threading.RLock()  # held while a step runs, and while what it gave is read

    def close(self) -> None:
        """Give back the memory and the file, and end the process that renders chat templates. From another thread this
        waits for the step that runs; the generation it belongs to ends with `ModelClosed`.
        """
        with self._lock:
            self._closed = True
            try:
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
        with _Turn(self), self._lock:
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
        with _Turn(self):
            with self._lock:
                self._check_running()
                self.engine.truncate(self._slot, 0)
            sizes = self.engine.sizes
            assert sizes is not None
            for start in range(0, len(ids), sizes.n_logits):
                part = ids[start : start + sizes.n_logits]
                with self._lock:
                    self._check_running()
                    result = self.engine.step([Rows(self._slot, start, part, wanted=range(len(part)))])
                yield start, result.logits

    def generate(
        self, prompt: str | Sequence[int], params: SamplingParams | None = None, **overrides: Any
    ) -> Generation:
        """The whole text at once; arguments and errors as for `stream`."""
        return Generation.collect(self.stream(prompt, params, **overrides))

    def stream(
        self, prompt: str | Sequence[int], params: SamplingParams | None = None, **overrides: Any
    ) -> Generator[Chunk]:
        """Generate after a prompt (text, or token ids as they are), chunk by chunk.

        overrides: fields of `SamplingParams` by name. Everything is checked here, before the first chunk is asked for.
        Raises `EmptyPrompt`, `PromptTooLong`, `TokenOutOfRange`, `InvalidSamplingParam`, `UnknownParameter`,
        `UsageError` for a prompt that is neither text nor token ids, `ModelClosed`, `FileChanged`.
        """
        self._check_open()
        self._check_generates()
        chosen = SamplingParams.with_overrides(params, **overrides)
        sampler = Sampler(chosen, self.tokenizer.n_vocab)  # padding rows of the embedding are no tokens
        if isinstance(prompt, str) and not prompt:
            raise EmptyPrompt("the prompt is empty; give at least one character")
        ids = self._checked(self.tokenize(prompt) if isinstance(prompt, str) else prompt)
        check_fits(ids, self.n_ctx)
        return self._stream(ids, chosen, sampler)

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

    def _check_running(self, reads: bool = True) -> None:
        """Before a step, and before what it gave is read (reads: False), with the lock held.

        Raises `ModelClosed`, and `FileChanged`, which is looked for no more often than every 10 ms: steps may read from
        the mapped file, where a page that was cut off ends the process.
        """
        if self._closed:
            raise ModelClosed("the model was closed while it generated; load it again")
        if reads and (now := time.perf_counter()) - self._looked > _LOOK_SECONDS:
            self._looked = now
            self.file.check_unwritten()

    def _checked(self, tokens: Sequence[int]) -> list[int]:
        """A prompt's ids, at least one. Raises `EmptyPrompt`, `TokenOutOfRange`, `UsageError`."""
        ids = known_tokens(tokens, self.tokenizer.n_vocab)
        if not ids:
            raise EmptyPrompt("there are no tokens; at least one is needed")
        return ids

    def _stream(self, prompt: list[int], params: SamplingParams, sampler: Sampler) -> Generator[Chunk]:
        stop_ids = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else self.tokenizer.stop_ids)
        from zinc_rt.text import Detokenizer

        text, stops = Detokenizer(self.tokenizer, at_start=False), StopMatcher(params.stop)
        history, limit = list(prompt), params.max_tokens
        with _Turn(self):
            started = time.perf_counter()
            requests = [SamplingRequest(sampler, history)]
            with self._lock:
                self._check_running()
                cached = self._reuse(prompt)
                self.engine.checkpoint(self._slot)
            step = self._prefill(prompt, cached, requests)
            prefilled = decoded = time.perf_counter()
            reason, n, told = None, 0, False
            while reason is None:
                with self._lock:
                    self._check_running(reads=False)
                    token = step.token()
                decoded = time.perf_counter()
                if sampler.n_nan and not told:
                    told = True
                    self._tell_nan(sampler, n + 1)
                if token.token_id in stop_ids:
                    reason = "stop"
                    break
                n += 1
                history.append(token.token_id)
                shown, stopped = stops.add(text.add(token.token_id))
                yield _chunk(shown, token)
                if stopped:
                    reason = "stop"
                elif limit is not None and n >= limit:
                    reason = "length"
                elif len(history) > self.n_ctx:
                    reason = "context"
                else:
                    step = self._advance(history, requests)
            rest = "" if stops.matched is not None else self._rest(text, stops)
            stats = Stats(len(prompt), n, prefilled - started, decoded - prefilled, cached)
            yield Chunk(rest, finish_reason=reason, stats=stats, seed=sampler.seed)

    def _tell_nan(self, sampler: Sampler, token: int) -> None:
        """The notice of a generation whose logits are partly NaN."""
        if self._notify is not None:
            self._notify(
                f"{sampler.n_nan} of {sampler.n_vocab} logits of token {token} are NaN; they count as -inf, so the text"
                " may be wrong; compare the model file with its source"
            )

    @staticmethod
    def _rest(text: Detokenizer, stops: StopMatcher) -> str:
        shown, stopped = stops.add(text.flush())
        return shown if stopped else shown + stops.flush()

    def _prefill(self, prompt: list[int], start: int, requests: list[SamplingRequest]) -> SampledStep:
        """Run the prompt from index `start` on, in steps of n_batch rows; the last one is asked for a token.

        What recurrent layers hold is kept where the prompt goes on and where its last step begins: a next prompt that
        leaves this one earlier goes back there.
        """
        n_batch = self.engine.options.n_batch
        # A checkpoint is worth the less the farther it lies before the end.
        reach = min(n_batch, _LAST_STEP) if self.engine.keeps_recurrent_state else n_batch
        last = last_step(start, len(prompt), reach)
        while start < last:
            part = prompt[start : min(last, start + n_batch)]
            with self._lock:
                self._check_running()
                self.engine.step([Rows(self._slot, start, part)])
            start += len(part)
        part = prompt[start:]
        with self._lock:
            self._check_running()
            self.engine.checkpoint(self._slot)
            return self.engine.step([Rows(self._slot, start, part, wanted=(len(part) - 1,))], requests)

    def _advance(self, history: list[int], requests: list[SamplingRequest]) -> SampledStep:
        with self._lock:
            self._check_running()
            return self.engine.step([Rows(self._slot, len(history) - 1, history[-1:], wanted=(0,))], requests)

    def cached_tokens(self, prompt: Sequence[int]) -> int:
        """How many of a prompt's first tokens need not be computed, as the last call's keys and values are still there;
        all but its last token at most. A model with recurrent layers goes on at a checkpoint.

        Raises `UsageError` for models loaded to embed.
        """
        self._check_generates()
        shared = 0
        for old, new in zip(self.engine.tokens(self._slot), prompt[:-1], strict=False):
            if old != new:
                break
            shared += 1
        return self.engine.resumable(self._slot, shared)

    def _reuse(self, prompt: list[int]) -> int:
        """Keep what the cache shares with the prompt; returns the length."""
        return self.engine.truncate(self._slot, self.cached_tokens(prompt))


_LAST_STEP = 64
"""Rows of a prompt's last step at the most, where recurrent layers are."""


def last_step(start: int, end: int, n_batch: int) -> int:
    """Where the last step begins of as few steps as rows start .. end - 1 take: as late as that, at a page's edge where
    one lies within reach.
    """
    latest = start + (end - start - 1) // n_batch * n_batch
    edge = latest // PAGE_TOKENS * PAGE_TOKENS
    return edge if edge > max(start, end - n_batch - 1) else latest


class _Turn:
    """One generation at a time: the sequence's cache is shared state."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __enter__(self) -> None:
        if self._model._busy:
            raise EngineError("another generation is running on this model; finish or close it first")
        self._model._busy = True

    def __exit__(self, *exception: object) -> None:
        self._model._busy = False


def _chunk(text: str, token: Sampled) -> Chunk:
    return Chunk(text, token.token_id, token.logprob, token.top_logprobs)
