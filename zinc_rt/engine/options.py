"""How a model is run: `DeviceOptions` and `CacheOptions`, as callers of `load` give them; `Options` of an engine."""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from pathlib import Path

from zinc_rt.backends.devices import Device, DeviceChoice, ResidentUse, parse_device
from zinc_rt.backends.host import MAX_THREADS
from zinc_rt.backends.select import KERNELS, Kernels
from zinc_rt.errors import UsageError
from zinc_rt.models.cache_format import CacheFormat, parse_cache_format
from zinc_rt.utils.checks import path_text, show, true_or_false, whole_between

MAX_BATCH = 4096
"""Rows of a step at the most."""
LARGE_BATCH = 512
"""Rows of a step for prompts on native kernels and on a GPU: routed models then have enough rows for each expert."""
DEFAULT_N_CTX = 4096


def context_of(n_ctx: int | None, trained: int) -> int:
    """Tokens of a sequence at the most: as given, else `DEFAULT_N_CTX` or the fewer that the model was trained for."""
    return n_ctx or min(trained, DEFAULT_N_CTX)


@dataclass(frozen=True)
class DeviceOptions:
    """Where a model runs, and by which code. Raises `UsageError`, and `UnknownDevice` for the name of a device.

    device: "cpu", "gpu", "gpu:kfd", "gpu:cs", "gpu:umq", "emu" or "auto", the best that works; a card may follow, as in
    "gpu@03:00.0" or "gpu:cs@renderD129". None follows ZINC_RT_TIER, else "auto".
    threads: None for the physical cores that this process may use, control-group limits included.
    kernels: "native" or "reference": the same bits, slowly; None is native where this machine has a level for it.
    isa: the native kernels' instruction-set level (None: the best that this machine runs).
    cache_dir: where compiled kernels are kept (None: the user's cache folder).
    gpu: with the device "emu", the GPU that is emulated (`zinc emu list`; None: "r9700").
    resident: when a step on a GPU is one program, "auto", "always" or "never" (docs/how/amd.md).
    memory: bytes that the engine may use of the CPU's memory; a larger model reads weights from the disk in each step
    (docs/how/native.md). None: what the machine and the control group have, and a larger model is refused.
    """

    device: str | None = None
    threads: int | None = None
    kernels: str | None = None
    isa: str | None = None
    cache_dir: str | Path | None = None
    gpu: str | None = None
    resident: str = "auto"
    memory: int | None = None

    def __post_init__(self) -> None:
        if self.device is not None:
            parse_device(self.device)
        _whole(self, threads=(1, MAX_THREADS), memory=(1, 1 << 48))
        if self.kernels is not None and self.kernels not in KERNELS:
            raise UsageError(f"kernels is {show(self.kernels)}, it must be {' or '.join(KERNELS)}")
        if self.isa is not None and not isinstance(self.isa, str):
            raise UsageError(f"isa is {show(self.isa)}, it must be the name of a level or None")
        if self.isa is not None and self.kernels not in (None, "native"):
            raise UsageError(f"isa is {self.isa!r}, but the {self.kernels} kernels have no levels; give no isa")
        if self.cache_dir is not None:
            object.__setattr__(self, "cache_dir", Path(path_text("cache_dir", self.cache_dir)))


@dataclass(frozen=True)
class CacheOptions:
    """The length of texts, the number of texts computed at once, and the memory of the KV cache. Raises `UsageError`.

    n_ctx: tokens of a prompt and its text (None: the model's own, at most 4096).
    n_batch: rows of a step with prompts (None: 512 with native kernels of a CPU and on a GPU, else 64).
    n_slots: texts computed at once, where more are asked for (None: 8 that share the memory of one context; 1 where
    each needs recurrent state of its own).
    kv: what the KV cache holds, "f16" or "q8_0", which takes half the memory.
    kv_tokens: positions that all texts together may have (None: n_ctx for each).
    kv_memory: the same in bytes, those of texts that may come again included; in place of kv_tokens.
    state_memory: bytes of copies of recurrent layers' states (None: a copy for every 512 tokens of the KV cache, one a
    sequence and two more, as far as half of the memory that is left holds them; one a sequence and two more in any
    case).
    """

    n_ctx: int | None = None
    n_batch: int | None = None
    n_slots: int | None = None
    kv: str = CacheFormat.F16
    kv_tokens: int | None = None
    kv_memory: int | None = None
    state_memory: int | None = None

    def __post_init__(self) -> None:
        _whole(self, n_batch=(1, MAX_BATCH), n_slots=(1, 4096), n_ctx=(1, 1 << 24))
        _whole(self, kv_tokens=(1, 1 << 32), kv_memory=(1, 1 << 48), state_memory=(0, 1 << 48))
        if self.kv_tokens is not None and self.kv_memory is not None:
            raise UsageError(f"kv_tokens is {self.kv_tokens} and kv_memory is {self.kv_memory}; give one of them")
        object.__setattr__(self, "kv", parse_cache_format(self.kv))


@dataclass(frozen=True)
class Options(CacheOptions, DeviceOptions):
    """The options of an engine; values that callers of `load` left open are decided here. Raises `UsageError`.

    n_logits: rows of a step whose logits may be wanted, one of each sequence at the least (None: all). check_memory:
    refuse a plan that does not fit. drafts: whether steps will have drafts in them (`SequenceChunk.n_draft`), for
    which each sequence needs one more copy of its state. card: the GPU, where the device's name says one, as
    "renderD129" or "0000:03:00.0". fast_n_batch: n_batch where kernels are fast, native ones of a CPU and those of a
    GPU (None: n_batch, too). What an engine decided stands in `Engine.sizes`. tier: the older name of `device`.
    """

    device: Device = Device.cpu
    kernels: Kernels = "native"
    cache_dir: Path | None = None
    resident: ResidentUse = "auto"
    n_batch: int = 64
    n_slots: int = 1
    kv: CacheFormat = CacheFormat.F16
    check_memory: bool = True
    n_logits: int | None = None
    drafts: bool = False
    card: str = ""
    fast_n_batch: int | None = None
    tier: InitVar[str | None] = None

    def __post_init__(self, tier: str | None) -> None:
        if tier is not None and self.device is not Device.cpu:
            raise UsageError(f"device is {self.device!r} and tier is {tier!r}; give device only")
        choice = parse_device(self.device if tier is None else tier)
        if self.card and self.card != choice.card:
            if choice.card:
                raise UsageError(f"device is {choice} and card is {show(self.card)}; name one card")
            choice = parse_device(str(DeviceChoice(choice.device, self.card)))
        object.__setattr__(self, "device", choice.device)
        object.__setattr__(self, "card", choice.card)
        for field in ("kernels", "n_batch", "n_slots"):
            if getattr(self, field) is None:
                raise UsageError(f"{field} is None; an engine needs one")
        DeviceOptions.__post_init__(self)
        CacheOptions.__post_init__(self)
        _whole(self, fast_n_batch=(1, MAX_BATCH), n_logits=(1, MAX_BATCH))
        true_or_false("check_memory", self.check_memory)
        true_or_false("drafts", self.drafts)


def _whole(options: object, **limits: tuple[int, int]) -> None:
    """Check fields that are whole numbers or None; NumPy's become Python's. limits: least and most of each field."""
    for field, (least, most) in limits.items():
        if (value := getattr(options, field)) is not None:
            object.__setattr__(options, field, whole_between(field, value, least, most))
