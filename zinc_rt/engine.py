"""The engine: a tier's backend, one model lowered onto it, the KV pages of its sequences, and the step.

    engine = Engine(Options(tier=Tier.t_cpu))
    engine.load(file, definition)
    slot = engine.open_sequence()
    result = engine.step([Rows(slot, 0, token_ids, wanted=(len(token_ids) - 1,))])

A step is data: rows of (sequence, position, token), prompt rows and decode rows alike, any mix, any number up to
`n_batch`. The same rows give the same bits however they are cut into steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.base import Capacity
from zinc_rt.backends.cpu.backend import KERNELS, MAX_THREADS, CpuBackend, Kernels
from zinc_rt.backends.packet_list import LoweredGraph
from zinc_rt.backends.select import BackendOptions, open_backend
from zinc_rt.backends.tiers import (
    ON_GPU,
    Tier,
    TierReport,
    TierUnavailable,
    UnknownZincRtTier,
    auto_tier,
    parse_tier,
    probe_tiers,
    said_of,
    tier_from_env,
)
from zinc_rt.checks import path_text, show, true_or_false, whole_between
from zinc_rt.errors import BackendError, UsageError, ZincError
from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import BufferKind
from zinc_rt.ir.ops import product_weights
from zinc_rt.kernels.errors import TokenOutOfRange
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.lang.errors import LangError
from zinc_rt.mem.errors import MemoryPlanError
from zinc_rt.mem.kv_pages import KVPages, pages_for
from zinc_rt.mem.plan import MemoryPlan
from zinc_rt.models import ModelDefinition, StateSpec

if TYPE_CHECKING:
    from zinc_rt.backends.amdgpu.backend import AmdBackend
    from zinc_rt.backends.amdgpu.sampling import GpuSampling
    from zinc_rt.backends.base import StepProfile
    from zinc_rt.kernels.rdna.sampling_plan import SamplingShape
    from zinc_rt.linux import Linux

__all__ = [
    "SUPPORTS_MULTITENANT_BATCHED_EXECUTION",
    "SUPPORTS_MULTITENANT_BATCH_PLANNING",
    "Capabilities",
    "ContextFull",
    "Engine",
    "EngineError",
    "Options",
    "Rows",
    "SampledStep",
    "StepResult",
    "Tier",
    "TierReport",
    "TierUnavailable",
    "UnknownZincRtTier",
    "auto_tier",
    "parse_tier",
    "probe_tiers",
    "tier_from_env",
]


SUPPORTS_MULTITENANT_BATCH_PLANNING = True
SUPPORTS_MULTITENANT_BATCHED_EXECUTION = False


class EngineError(ZincError):
    """The engine was used against its rules."""


class ContextFull(ZincError):
    """A sequence has no room for the positions of a step."""


@dataclass(frozen=True)
class Capabilities:
    """What there is beyond one caller's sequences. `sched.BatchScheduler` plans for tenants that were registered
    with it; no engine runs those plans.
    """

    multitenant_batch_planning: bool = SUPPORTS_MULTITENANT_BATCH_PLANNING
    requires_explicit_tenant_registration: bool = True
    multitenant_batched_execution: bool = SUPPORTS_MULTITENANT_BATCHED_EXECUTION
    server_entrypoint: bool = False


@dataclass(frozen=True)
class Options:
    """How to run. n_ctx: tokens of a sequence (None: what the model was trained for, at most 4096); n_batch: rows of
    a step at the most; n_slots: sequences at once; kernels, threads, isa: see `BackendOptions`; cache_dir: where
    compiled
    kernels are kept (None: the user's cache folder); check_memory: refuse a plan that does not fit.
    """

    tier: Tier = Tier.t_cpu
    n_ctx: int | None = None
    n_batch: int = 64
    n_slots: int = 1
    threads: int | None = None
    kernels: Kernels = "native"
    isa: str | None = None
    cache_dir: Path | None = None
    check_memory: bool = True

    def __post_init__(self) -> None:
        for field, least, most in (
            ("n_batch", 1, 4096),
            ("n_slots", 1, 4096),
            ("threads", 1, MAX_THREADS),
            ("n_ctx", 1, 1 << 24),
        ):
            value = getattr(self, field)
            if value is not None or field in ("n_batch", "n_slots"):
                object.__setattr__(self, field, whole_between(field, value, least, most))
        object.__setattr__(self, "tier", parse_tier(self.tier))
        if self.kernels not in KERNELS:
            raise UsageError(f"kernels is {show(self.kernels)}, it must be {' or '.join(KERNELS)}")
        if self.isa is not None and not isinstance(self.isa, str):
            raise UsageError(f"isa is {show(self.isa)}, it must be the name of a level or None")
        if self.cache_dir is not None:
            object.__setattr__(self, "cache_dir", Path(path_text("cache_dir", self.cache_dir)))
        true_or_false("check_memory", self.check_memory)
        if self.isa is not None and self.kernels != "native":
            raise UsageError(f"isa is {self.isa!r}, but the {self.kernels} kernels have no levels; give no isa")


DEFAULT_N_CTX = 4096
_STEP_INPUTS = ("token_ids", "positions", "slots", "logit_rows")
_MAX_TOKEN = 1 << 31


@dataclass(frozen=True)
class Rows:
    """Consecutive positions of one sequence in a step.

    slot: the sequence; start: position of the first token; tokens: ids; wanted: which of them (indices) want logits.
    """

    slot: int
    start: int
    tokens: Sequence[int] | npt.NDArray[np.integer]
    wanted: Sequence[int] = ()


@dataclass(frozen=True)
class StepResult:
    """Valid until the next step. logits: f32[n_logits, n_vocab]; tokens: i32[n_logits], the argmax of each."""

    logits: npt.NDArray[np.float32]
    tokens: npt.NDArray[np.int32]


@dataclass(frozen=True)
class SampledStep:
    """Valid until the next step. tokens: i32[n_logits]; status: u32[n_logits], see `sampling_gpu.accept`; logits: what
    fetches them, f32[n_logits, n_vocab].
    """

    tokens: npt.NDArray[np.int32]
    status: npt.NDArray[np.uint32]
    logits: Callable[[], npt.NDArray[np.float32]]


class Engine:
    """One backend with at most one model. Belongs to one thread."""

    def __init__(
        self,
        options: Options | None = None,
        *,
        notify: Callable[[str], None] | None = None,
        progress: Callable[[int, int], None] | None = None,
        linux: Linux | None = None,
    ) -> None:
        """Open the tier; `notify` gets lines worth showing, `progress` bytes of weights loaded and in all.

        linux: the machine whose GPUs to use, as an emulated one; None for this one.
        Raises `TierUnavailable`, `UsageError` for options that the tier does not have, `UnsupportedTarget`.
        """
        self.options = options or Options()
        self._notify, self._progress = notify, progress
        options = self.options
        self._open_backend(options.tier, linux)
        self._product_bytes = 0  # of the matrices that a step reads whole
        self._states: tuple[StateSpec, ...] = ()
        self._forget()
        self._lengths: dict[int, int] = {}  # open sequences: how many positions their cache holds
        self.sizes: Capacity | None = None
        self.plan: MemoryPlan | None = None

    def _open_backend(self, tier: Tier, linux: Linux | None) -> None:
        options, notify = self.options, self._notify
        cache = CompileCache(options.cache_dir or default_cache_dir(), notify=notify)
        self.tier, self._backend = open_backend(
            tier, BackendOptions(options.kernels, options.threads, options.isa), cache, notify=notify, linux=linux
        )
        self.kernels, self.isa, self.threads = self._backend.kernels, self._backend.isa, self._backend.threads

    @classmethod
    def init(cls, options: Options | None = None) -> Engine:
        """The same as the constructor."""
        return cls(options)

    def deinit(self) -> None:
        """The same as `close`."""
        self.close()

    def close(self) -> None:
        """Give back all memory; the engine cannot be used again."""
        self._forget()  # first: a backend's arrays look at memory that it gives back
        self._backend.close()

    def _forget(self) -> None:
        self._batch: LoweredGraph | None = None
        self._pages: KVPages | None = None
        self._logits, self._tokens = np.empty((0, 0), np.float32), np.empty(0, np.int32)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def how(self) -> str:
        """The tier, its kernels and what runs them, for a line on the screen."""
        return f"{self.tier.value}: {self._backend.description}"

    def capabilities(self) -> Capabilities:
        """What this engine can do."""
        return Capabilities()

    def load(self, file: GGUFFile, definition: ModelDefinition) -> MemoryPlan:
        """Plan, say so, check the plan against the memory there is, then lower the graph.

        A GPU that `auto` took is left for the CPU when it cannot take the model. Raises `MemoryPlanError`,
        `BackendError`.
        """
        if self._batch is not None:
            raise EngineError("the engine has a model already; open another engine for a second one")
        try:
            return self._load(file, definition)
        except (BackendError, MemoryPlanError, LangError) as error:
            if self.options.tier is not Tier.auto or self.tier not in ON_GPU:
                raise
            line = said_of(Tier.t_cpu, [TierReport(self.tier, False, str(error))])
        with suppress(BackendError):  # of a device that is lost
            self._backend.close()
        if self._notify is not None:
            self._notify(line)
        self._open_backend(Tier.t_cpu, None)
        return self._load(file, definition)

    def _load(self, file: GGUFFile, definition: ModelDefinition) -> MemoryPlan:
        graph, options = definition.graph, self.options
        n_ctx = options.n_ctx or min(definition.info.n_ctx_train, DEFAULT_N_CTX)
        n_pages = pages_for(n_ctx) * options.n_slots
        sizes = Capacity(options.n_batch, options.n_batch, n_ctx, options.n_slots, n_pages)
        weights = [b.name for b in graph.of_kind(BufferKind.WEIGHT)]
        plan = MemoryPlan(available=self._backend.memory_available, **self._backend.plan(graph, sizes))
        if self._notify is not None:
            self._notify(f"{self.how}; {plan.summary}")
        if options.check_memory:
            plan.check()
        constants = {name: make(n_ctx) for name, make in definition.constants.items()}
        raw = {name: definition.raw(file, name) for name in weights}
        self._batch = self._backend.lower(
            graph, sizes, raw, constants, partial(definition.release, file), self._progress
        )
        self._pages = KVPages(n_pages, options.n_slots, sizes.max_pages, self._batch.inputs["page_table"])
        # Valid until the next step, like all outputs.
        self._logits = self._batch.outputs["logits"].view(np.float32)
        self._tokens = self._batch.outputs["tokens"].view(np.int32)
        self.sizes, self.plan, self._states = sizes, plan, definition.states
        self._product_bytes = sum(raw[graph.buffer(b).name].nbytes for b in product_weights(graph))
        return plan

    def step_bytes(self, n_positions: int) -> int:
        """Bytes of weights and state that a step of one row at position n_positions - 1 reads."""
        self._loaded()
        return self._product_bytes + sum(state.bytes_read(n_positions) for state in self._states)

    def read_bandwidth(self, n_bytes: int) -> float:
        """10^9 bytes per second at which the engine's threads read memory. Raises `BackendError` for reference
        kernels.
        """
        if not isinstance(self._backend, CpuBackend):
            raise BackendError(f"bandwidth is measured by the native kernels; this engine is {self.how}")
        return self._backend.read_bandwidth(n_bytes)

    def start_profile(self) -> None:
        """Record the steps from now on. Raises `BackendError` where that cannot be had."""
        self._backend.start_profile(self._loaded()[0])

    def finish_profile(self) -> StepProfile:
        """What the steps since `start_profile` spent their time on."""
        return self._backend.finish_profile()

    def _loaded(self) -> tuple[LoweredGraph, KVPages, Capacity]:
        if self._batch is None or self._pages is None or self.sizes is None:
            raise EngineError("no model is loaded")
        return self._batch, self._pages, self.sizes

    def open_sequence(self) -> int:
        """A free slot. Raises `EngineError` when all are taken."""
        _, _, sizes = self._loaded()
        for slot in range(sizes.n_slots):
            if slot not in self._lengths:
                self._lengths[slot] = 0
                return slot
        raise EngineError(f"all {sizes.n_slots} sequences are in use; close one or raise n_slots")

    def close_sequence(self, slot: int) -> None:
        """Free the slot and its pages. Raises `EngineError` when it is not open."""
        _, pages, _ = self._loaded()
        self._check_open(slot)
        del self._lengths[slot]
        pages.release(slot)

    def truncate(self, slot: int, n_tokens: int) -> None:
        """Forget the sequence's positions from `n_tokens` on. Raises `EngineError` when it is not open."""
        _, pages, _ = self._loaded()
        self._check_open(slot)
        self._lengths[slot] = min(self._lengths[slot], max(0, n_tokens))
        pages.shrink(slot, self._lengths[slot])

    def _check_open(self, slot: int) -> None:
        if slot not in self._lengths:
            raise EngineError(f"sequence {slot} is not open")

    def check_integrity(self) -> None:
        """Raise `PageIntegrityError` unless the KV page books add up."""
        self._loaded()[1].check_integrity()

    def step(self, rows: Sequence[Rows]) -> StepResult:
        """Schedule the rows, run the batch, hand out the logits that were wanted, in row order.

        Raises `EngineError` (bad rows), `ContextFull`, `PagesExhausted`, `TokenOutOfRange`; nothing has run then.
        """
        batch, pages, sizes = self._loaded()
        n_rows, n_logits = self._schedule(rows, batch.inputs, pages, sizes)
        batch.counts[0], batch.counts[1] = n_rows, n_logits
        self._backend.wait(self._backend.submit(batch))
        self._ran(rows)
        return StepResult(self._logits[:n_logits], self._tokens[:n_logits])

    def _ran(self, rows: Sequence[Rows]) -> None:
        for part in rows:
            self._lengths[part.slot] = part.start + len(part.tokens)

    def settle(self) -> None:
        """Wait for a step that was interrupted, before the next one's inputs are written. Raises what `step` raises."""
        self._backend.settle()

    @property
    def samples(self) -> bool:
        """Whether steps can end with sampled tokens, so that no logits need to come to the host."""
        return self.kernels == "rdna"

    def open_sampling(
        self, n_vocab: int, rows: int, shape: SamplingShape, table: npt.NDArray[np.uint64]
    ) -> GpuSampling:
        """What `step_sampled` needs for `rows` wanted rows; see `AmdBackend.open_sampling`. Raises `BackendError`."""
        return self._gpu().open_sampling(self._loaded()[0], n_vocab, rows, shape, table)

    def step_sampled(self, rows: Sequence[Rows], sampling: GpuSampling) -> SampledStep:
        """As `step`, with a token for each wanted row in place of its logits. Raises what `step` raises."""
        backend, (batch, pages, sizes) = self._gpu(), self._loaded()
        batch.counts[0], batch.counts[1] = self._schedule(rows, batch.inputs, pages, sizes)
        backend.wait(backend.submit_sampled(batch, sampling))
        self._ran(rows)

        def logits() -> npt.NDArray[np.float32]:
            backend.fetch(batch, sampling)
            return self._logits[: batch.counts[1]]

        return SampledStep(sampling.tokens, sampling.status, logits)

    def _gpu(self) -> AmdBackend:
        if not self.samples:
            raise BackendError(f"tokens are sampled by GPUs; this engine is {self.how}")
        return cast("AmdBackend", self._backend)

    def _schedule(
        self, rows: Sequence[Rows], inputs: Mapping[str, npt.NDArray[np.int32]], pages: KVPages, sizes: Capacity
    ) -> tuple[int, int]:
        """Write the step's inputs; returns its row and logit counts."""
        self._backend.settle()  # a step that was interrupted may still read them
        n_rows, n_wanted = 0, 0
        ids, positions, slots, logit_rows = (inputs[name] for name in _STEP_INPUTS)
        ends: dict[int, int] = {}  # of sequences that have rows in this step already
        for part in rows:
            end = part.start + len(part.tokens)
            self._check_rows(part, n_rows, sizes, ends.get(part.slot))
            pages.grow(part.slot, end)
            ends[part.slot] = end
            if end == part.start + 1:  # as in every decode step: elements are set sooner than slices
                ids[n_rows], positions[n_rows], slots[n_rows] = part.tokens[0], part.start, part.slot
            else:
                at = slice(n_rows, n_rows + len(part.tokens))
                ids[at], positions[at], slots[at] = part.tokens, np.arange(part.start, end), part.slot
            for i in part.wanted:
                logit_rows[n_wanted] = n_rows + int(i)
                n_wanted += 1
            n_rows += len(part.tokens)
        if not n_rows:
            raise EngineError("a step needs at least one row")
        return n_rows, n_wanted

    def _check_rows(self, part: Rows, n_before: int, sizes: Capacity, end: int | None) -> None:
        n = len(part.tokens)
        self._check_open(part.slot)
        for token in part.tokens:
            if not 0 <= int(token) < _MAX_TOKEN:
                raise TokenOutOfRange(f"sequence {part.slot}: a token id is negative or beyond every vocabulary")
        if n_before + n > sizes.n_rows:
            raise EngineError(f"the step has {n_before + n} rows or more, n_batch is {sizes.n_rows}")
        if part.start < 0 or part.start + n > sizes.n_ctx:
            raise ContextFull(
                f"positions {part.start} to {part.start + n - 1} do not fit the context of {sizes.n_ctx} tokens"
            )
        if part.start > self._lengths[part.slot] if end is None else part.start != end:
            held = self._lengths[part.slot] if end is None else end
            raise EngineError(f"sequence {part.slot} holds {held} positions, rows cannot start at {part.start}")
        for i in part.wanted:
            if not 0 <= int(i) < n:
                raise EngineError(f"wanted must be distinct indices below {n}, got {list(part.wanted)}")
        if len(part.wanted) > 1 and len(set(part.wanted)) != len(part.wanted):
            raise EngineError(f"wanted must be distinct indices below {n}, got {list(part.wanted)}")
