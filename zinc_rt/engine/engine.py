"""The engine: a device's backend, one model lowered onto it, the KV pages of its sequences, and the step.

    engine = Engine(Options(Device.cpu))
    engine.load(file, definition)
    seq_id = engine.open_sequence()
    result = engine.step([SequenceChunk(seq_id, 0, token_ids, logits_indices=(len(token_ids) - 1,))])

A step is data: rows of (sequence, position, token), prompt rows and decode rows alike, any mix, any number up to
`n_batch`. The same rows give the same bits however they are cut into steps. `Engine.cache` has the sequences.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.arrays import sequence_states, state_bytes
from zinc_rt.backends.base import Backend, BackendFeatures, Capacity, LoweredGraph, check_step
from zinc_rt.backends.devices import (
    ON_GPU,
    Device,
    DeviceChoice,
    DeviceReport,
    DeviceUnavailable,
    UnknownDevice,
    device_from_env,
    format_skipped,
    parse_device,
)
from zinc_rt.backends.select import BackendOptions, open_backend, probe_devices
from zinc_rt.engine.batch import EngineError, SequenceChunk
from zinc_rt.engine.kv_cache import CacheStats, KVCacheManager
from zinc_rt.engine.options import Options, context_of
from zinc_rt.engine.page_pool import root_key
from zinc_rt.engine.pictures import Pictures
from zinc_rt.engine.recurrent_state import Snapshots, copies, wanted_copies
from zinc_rt.engine.streamed import offer, speed_of, streamed
from zinc_rt.errors import BackendError, UsageError
from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import BufferKind, Graph
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.lang.errors import LangError
from zinc_rt.mem.errors import MemoryPlanError
from zinc_rt.mem.plan import MemoryPlan, format_bytes
from zinc_rt.models import ModelDefinition
from zinc_rt.models.cache_format import CacheFormat, with_cache
from zinc_rt.models.constants import Constants
from zinc_rt.models.hidden import HIDDEN, ends_hidden, reads_whole
from zinc_rt.numerics import PAGE_TOKENS, VERSION, pages_for
from zinc_rt.sampling.request import HostSampled, SampledStep, SamplingRequest
from zinc_rt.utils.closing import Closing
from zinc_rt.utils.notices import Detail

if TYPE_CHECKING:
    from zinc_rt.backends.base import StepProfile
    from zinc_rt.utils.linux import Linux

__all__ = [
    "CacheStats",
    "Device",
    "DeviceChoice",
    "DeviceReport",
    "DeviceUnavailable",
    "Engine",
    "EngineError",
    "Options",
    "SequenceChunk",
    "StepResult",
    "UnknownDevice",
    "device_from_env",
    "parse_device",
    "probe_devices",
]

_SEED = "zinc_rt.seed.engine"
_SEED_NAMES = frozenset(
    {
        "SUPPORTS_MULTITENANT_BATCHED_EXECUTION", "SUPPORTS_MULTITENANT_BATCH_PLANNING", "Capabilities", "Tier",
        "TierUnavailable", "UnknownZincRtTier", "auto_tier", "parse_tier", "tier_from_env",
    }
)  # fmt: skip
"""Names of the seed's module `engine`, which users of its API look for here; nothing in the runtime uses them."""


def __getattr__(name: str) -> Any:
    if name in _SEED_NAMES:
        return getattr(importlib.import_module(_SEED), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _pages(options: Options, n_ctx: int, graph: Graph) -> int:
    """Pages of the KV cache. Raises `UsageError` where `kv_memory` is too little for a sequence of n_ctx tokens."""
    a_sequence = pages_for(n_ctx)
    n_pages = a_sequence * options.n_slots
    if options.kv_tokens is not None:  # each sequence may leave the better part of a page unused
        n_pages = min(n_pages, pages_for(options.kv_tokens) + options.n_slots)
    page_bytes = state_bytes(graph, Capacity(1, 1, n_ctx, 1, 1))["kv_cache"]
    if options.kv_memory is not None and page_bytes:
        n_pages = options.kv_memory // page_bytes
        if n_pages < a_sequence:
            raise UsageError(
                f"kv_memory is {format_bytes(options.kv_memory)}, one sequence of n_ctx = {n_ctx} tokens needs"
                f" {format_bytes(a_sequence * page_bytes)}; give more, or a smaller context (n_ctx, -c)"
            )
    return n_pages


def _states(options: Options, n_tokens: int, one_state: int, left: int) -> int:
    """Copies of recurrent layers' states that are kept of texts of n_tokens positions in all.

    left: bytes that the rest of the plan leaves; copies beyond the few that are always kept take half of them at most.
    """
    if not one_state:
        return copies(options.n_slots)
    if options.state_memory is not None:
        return options.state_memory // one_state
    return max(copies(options.n_slots), min(wanted_copies(options.n_slots, n_tokens), left // 2 // one_state))


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _root(file: GGUFFile, kv: CacheFormat, salt: bytes) -> bytes:
    """The parent key of the first pages of a tenant's texts."""
    return root_key(file.identity, kv.encode(), str(VERSION).encode(), salt)


@dataclass(frozen=True)
class StepResult:
    """Valid until the next step. logits: f32[n_logits, n_vocab]; tokens: i32[n_logits], the argmax of each."""

    logits: npt.NDArray[np.float32]
    tokens: npt.NDArray[np.int32]


class Engine(Closing):
    """One backend with at most one model. Belongs to one thread; another one may close it."""

    def __init__(
        self,
        options: Options | None = None,
        *,
        notify: Callable[[str], None] | None = None,
        progress: Callable[[int, int], None] | None = None,
        planned: Callable[[MemoryPlan, bool], None] | None = None,
        linux: Linux | None = None,
        shares_device_of: Engine | None = None,
    ) -> None:
        """Open the device.

        Args:
            options: how to run; None for the defaults.
            notify: gets lines worth showing.
            progress: gets the bytes of weights loaded so far and in all.
            planned: gets the plan, and whether it is of a GPU's memory, before any of it is taken. It may wait until
                there is room, or raise.
            linux: the machine whose GPUs to use, as an emulated one; None for this one.
            shares_device_of: an engine with a model, whose device and threads this one uses, too. Close it after this
                one, and never run steps of both at once. Its model and this one's have to fit together.

        Raises:
            DeviceUnavailable: the device cannot run here.
            UsageError: an option that the device does not have.
            UnsupportedTarget: no kernels for this processor.
        """
        self.options = options or Options()
        self._notify, self._progress, self._owner = notify, progress, shares_device_of
        self._planned = planned
        self.device: Device
        self._backend: Backend
        if shares_device_of is None:
            self._open_backend(DeviceChoice(self.options.device, self.options.card), linux)
        else:
            self.device, self._backend = shares_device_of.device, shares_device_of._backend
        self._definition: ModelDefinition | None = None
        self._stepping = threading.RLock()  # a thread that closes waits for the step of another one
        self._forget()
        self.sizes: Capacity | None = None
        self.plan: MemoryPlan | None = None

    def _open_backend(self, device: DeviceChoice, linux: Linux | None) -> None:
        options, cache = self.options, CompileCache(self.options.cache_dir or default_cache_dir(), notify=self._notify)
        chosen = BackendOptions(
            options.kernels, options.threads, options.isa, options.gpu, options.resident, options.memory
        )
        self.device, self._backend = open_backend(device, chosen, cache, notify=self._notify, linux=linux)

    def close(self) -> None:
        """Give back all memory once the step that runs has ended; the engine cannot be used again."""
        with self._stepping:
            if self._cache is not None:
                with suppress(BackendError):  # of a device that is lost
                    self._cache.close()
            self._forget()  # first: a backend's arrays look at memory that it gives back
            if self._owner is None:
                self._backend.close()

    @classmethod
    def init(cls, options: Options | None = None) -> Self:
        """The constructor, by the seed's name."""
        return cls(options)

    def deinit(self) -> None:
        """`close`, by the seed's name."""
        self.close()

    def capabilities(self) -> Any:
        """The seed's `Capabilities`: its answer about tenants. `features` has what the device can do."""
        return __getattr__("Capabilities")()

    def _forget(self) -> None:
        self._lowered: LoweredGraph | None = None
        self._cache: KVCacheManager | None = None
        self._logits, self._likeliest = np.empty((0, 0), np.float32), np.empty(0, np.int32)
        self._hidden: npt.NDArray[np.float32] | None = None
        self._whole = False  # whether a sequence's rows see each other, so that one step takes all of them

    @property
    def features(self) -> BackendFeatures:
        """Kernels, their level and threads, and what can be done beside steps."""
        return self._backend.features

    @property
    def description(self) -> str:
        """The device, its kernels and what runs them, for a line on the screen."""
        return f"{self.device.value}: {self._backend.description}"

    def load(self, file: GGUFFile, definition: ModelDefinition) -> MemoryPlan:
        """Plan, say so, check the plan against the memory there is, then lower the graph.

        A GPU that `auto` took is left for the CPU when it cannot take the model. Raises `MemoryPlanError`,
        `BackendError`, `ModelError` where the model's heads do not fit the options' format of the KV cache.
        """
        if self._lowered is not None:
            raise EngineError("the engine has a model already; open another engine for a second one")
        definition = with_cache(definition, self.options.kv)
        try:
            return self._load(file, definition)
        except (BackendError, MemoryPlanError, LangError) as error:
            if self.options.device is not Device.auto or self.device not in ON_GPU or self._owner is not None:
                raise
            line = format_skipped(Device.cpu, [DeviceReport(self.device, False, str(error))])
        with suppress(BackendError):  # of a device that is lost
            self._backend.close()
        if self._notify is not None:
            self._notify(line)
        self._open_backend(DeviceChoice(Device.cpu), None)
        return self._load(file, definition)

    def _load(self, file: GGUFFile, definition: ModelDefinition) -> MemoryPlan:
        graph, options = definition.graph, self.options
        n_ctx = context_of(options.n_ctx, definition.info.n_ctx_train)
        n_pages = _pages(options, n_ctx, graph)
        fast = self.features.kernels != "reference" and self.device is not Device.emu
        n_batch = options.fast_n_batch if fast and options.fast_n_batch is not None else options.n_batch
        n_logits = min(n_batch, max(options.n_logits or n_batch, options.n_slots))
        sizes = Capacity(n_batch, n_logits, n_ctx, options.n_slots, n_pages)
        weights = [b.name for b in graph.of_kind(BufferKind.WEIGHT)]
        backend = self._backend
        planned = backend.plan(graph, sizes)
        one_state = planned.n_bytes["recurrent"] // sizes.n_slots
        plan = MemoryPlan(
            available=_least(backend.memory_available, options.memory),
            kept_free=backend.memory_kept_free,
            snapshots=(sizes.n_slots if options.drafts else 0) * one_state,
            **planned.n_bytes,
        )
        if self._planned is not None:
            self._planned(plan, self.device in ON_GPU)
            plan = replace(plan, available=_least(backend.memory_available, options.memory))
        left = plan.left if self._owner is None else 0
        # An embedded text never goes back.
        kept = 0 if ends_hidden(graph) else _states(options, n_pages * PAGE_TOKENS, one_state, left)
        plan = replace(plan, snapshots=plan.snapshots + kept * one_state)
        if self._owner is not None and (owners := self._owner.plan):  # what that has not touched counts as available
            plan = replace(plan, available=owners.available, main_model=owners.total)
        if options.memory is not None and not plan.fits:
            planned, plan = streamed(backend, planned, plan, file)
        if self._notify is not None:
            self._notify(Detail(f"{self.description}; {plan.summary}"))
            if planned.streamed is not None:
                self._notify(speed_of(planned.streamed, file))
        if options.check_memory:
            plan.check("" if plan.fits else offer(backend, planned, plan, file))
        constants = Constants(definition.constants, n_ctx)
        raw = {name: definition.raw(file, name) for name in weights}
        release = partial(definition.release, file)
        self._lowered = backend.lower(backend.tune(planned), raw, constants, release, self._progress)
        recurrent = any(state.sequence_bytes for state in definition.states)
        snapshots = Snapshots(self._backend, self._lowered, kept, copies(sizes.n_slots)) if recurrent else None
        self._whole = reads_whole(graph)
        # An encoder's keys and values at a text's beginning depend on its end, so texts share no pages.
        root = None if self._whole else partial(_root, file, options.kv)
        pictures = None
        if definition.pictures is not None:
            pictures = Pictures(definition.pictures, n_ctx, self._lowered.inputs)
        self._cache = KVCacheManager(backend, self._lowered, sizes, snapshots, root, pictures)
        # Valid until the next step, like all outputs.
        outputs = self._lowered.outputs
        if ends_hidden(graph):
            self._hidden = outputs[HIDDEN].view(np.float32)
        else:
            self._logits, self._likeliest = outputs["logits"].view(np.float32), outputs["tokens"].view(np.int32)
        self.sizes, self.plan, self._definition = sizes, plan, definition
        return plan

    @property
    def state_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of what `state_behind` gives, by name. Raises `EngineError` without a model."""
        if self._definition is None:
            raise EngineError("no model is loaded")
        return {b.name: tuple(int(dim) for dim in b.shape[1:]) for b in sequence_states(self._definition.graph)}

    def step_bytes(self, n_positions: int) -> int:
        """Bytes of weights and state that a step of one row at position n_positions - 1 reads, and those of recurrent
        state that it writes.
        """
        if self._definition is None:
            raise EngineError("no model is loaded")
        return self._definition.step_bytes(n_positions)

    def read_bandwidth(self, n_bytes: int) -> float:
        """10^9 bytes per second at which the engine's threads read memory.

        Raises `BackendError` where `features.measures_bandwidth` is false.
        """
        return self._backend.read_bandwidth(n_bytes)

    def card_constants(self) -> dict[str, float]:
        """What the engine's GPU takes for the things that a step is made of; see `Backend.card_constants`."""
        return self._backend.card_constants()

    def start_profile(self) -> None:
        """Record the steps from now on. Raises `BackendError` where that cannot be had."""
        self._backend.start_profile(self._loaded())

    def finish_profile(self) -> StepProfile:
        """What the steps since `start_profile` spent their time on."""
        return self._backend.finish_profile()

    def write_constant(self, name: str, values: npt.NDArray[np.generic], entry: int | None = None) -> None:
        """See `Backend.write_constant`; waits for a step that was interrupted."""
        self._backend.drain()
        self._backend.write_constant(self._loaded(), name, values, entry)

    @property
    def backend(self) -> Backend:
        """What runs the model: for other graphs on the same device."""
        return self._backend

    @property
    def lowered(self) -> LoweredGraph:
        """The model's graph on the backend: for graphs that share its memory. Raises `EngineError` without a model."""
        return self._loaded()

    @property
    def cache(self) -> KVCacheManager:
        """The sequences of the model, and what is kept of them. Raises `EngineError` without a model."""
        if self._cache is None:
            raise EngineError("no model is loaded")
        return self._cache

    def open_sequence(self, prompt: Sequence[int] | None = None, salt: bytes | None = b"") -> int:
        """See `KVCacheManager.open_sequence`."""
        return self.cache.open_sequence(prompt, salt)

    def close_sequence(self, seq_id: int) -> None:
        """See `KVCacheManager.close_sequence`."""
        self.cache.close_sequence(seq_id)

    def truncate(self, seq_id: int, n_tokens: int) -> int:
        """See `KVCacheManager.truncate`."""
        return self.cache.truncate(seq_id, n_tokens)

    def _loaded(self) -> LoweredGraph:
        if self._lowered is None:
            raise EngineError("no model is loaded")
        return self._lowered

    @overload
    def step(self, batch: Sequence[SequenceChunk]) -> StepResult: ...
    @overload
    def step(self, batch: Sequence[SequenceChunk], sampling: Sequence[SamplingRequest]) -> SampledStep: ...

    def step(
        self, batch: Sequence[SequenceChunk], sampling: Sequence[SamplingRequest] | None = None
    ) -> StepResult | SampledStep:
        """Compute a batch; hand out the logits that it asks for, or tokens in their place.

        Args:
            batch: what to compute.
            sampling: how to choose the token of each row that wants logits, in row order; None for the logits. A device
                that samples does it where the logits are; elsewhere `SampledStep` does it from the logits. Same tokens.

        Raises:
            EngineError: a bad batch, one that does not go on behind the positions of a sequence, or a position outside
                the context.
            PagesExhausted: no page is left for a row's position.
            TokenOutOfRange: a token id has no row in the embedding.
            BackendError: the device failed. With the others nothing has run.
        """
        with self._stepping:
            lowered, cache, backend = self._loaded(), self.cache, self._backend
            device = None
            if sampling is not None and backend.features.samples:
                device = backend.sampling_for(lowered, sampling, cache.sizes.n_ctx)
            backend.drain()  # a step that was interrupted may still read the inputs
            n_rows, n_logits = cache.write_batch(batch)
            if sampling is not None and len(sampling) != n_logits:
                raise EngineError(f"the step has {n_logits} wanted rows and {len(sampling)} sampling requests")
            lowered.counts[0], lowered.counts[1] = n_rows, n_logits
            if sampling is not None and device is not None:
                device.write(sampling)
            step = check_step(lowered)  # where nothing has run, nothing is lost
            cache.begin_step(batch)
            backend.wait(backend.submit(step, device))
            cache.end_step(batch)
            logits, likeliest = self._logits[:n_logits], self._likeliest[:n_logits]
            if sampling is None:
                return StepResult(logits, likeliest)
            if device is None:
                return HostSampled(sampling, logits, likeliest)
            return device.sampled(sampling, logits, likeliest, partial(backend.fetch_logits, lowered, device))

    @property
    def whole_sequences(self) -> bool:
        """Whether every row sees all others of its sequence, so that a step takes all of them."""
        return self._whole

    @property
    def generates(self) -> bool:
        """Whether the model computes logits."""
        return self._lowered is not None and self._hidden is None

    def hidden(self, batch: Sequence[SequenceChunk]) -> npt.NDArray[np.float32]:
        """Run a batch on a model that was loaded without its head: f32[n_rows, n_embd], valid until the next step.

        Args:
            batch: what to compute. An encoder needs all rows of a sequence in one step.

        Raises:
            EngineError: a bad batch, or a model that computes logits.
            What `step` raises.
        """
        if self._hidden is None:
            raise EngineError("the model was loaded to generate; load it with embeddings=True")
        self.step(batch)
        return self._hidden[: sum(len(chunk.tokens) for chunk in batch)]

    def touch_states(self) -> Iterator[None]:
        """Have the system give the memory of the KV cache before steps need it, a part at each turn of the iterator.

        Raises `EngineError` without a model.
        """
        return self._backend.touch_states(self._loaded())

    def drain(self) -> None:
        """Wait for a step that was interrupted. Raises what `step` raises."""
        self._backend.drain()
