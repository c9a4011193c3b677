"""The options that every verb takes that runs a model: which one, where, and how much text at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from zinc_rt.cli import options as o
from zinc_rt.cli.adapter_options import LoraOption, LoraScaled, given_adapters
from zinc_rt.cli.files import model_file
from zinc_rt.cli.option_records import OptionRecord
from zinc_rt.cli.verbosity import Verbosity
from zinc_rt.errors import UsageError
from zinc_rt.hub.resolve import AUTO
from zinc_rt.utils.checks import show


def _spec_kinds() -> list[str]:
    from zinc_rt.speculation.options import SpecKind

    return [kind.value for kind in SpecKind]


SpecName = Annotated[
    str | None,
    o.option(
        o.MODEL,
        "--spec",
        metavar="off|ngram|draft|mtp",
        autocompletion=o.completes(_spec_kinds),
        help="Guess the next tokens and compute them at once, which changes no text and may be faster: ngram guesses"
        " from prompt and text, draft by the model of -md, mtp by heads in the file. Default: draft with -md, else"
        " off.",
    ),
]
DraftModel = Annotated[
    Path | None,
    o.option(
        o.MODEL,
        "-md",
        "--model-draft",
        metavar="FILE",
        help="GGUF file of a small model with the same vocabulary, which guesses for --spec draft; or of the"
        " model's own block or assistant, for --spec mtp.",
    ),
]
DraftMax = Annotated[
    int | None,
    o.option(
        o.MODEL,
        "--draft-max",
        "--draft",
        "--draft-n",
        metavar="N",
        help="Most tokens to guess at once; the speed of steps decides how many are guessed. Default: 16.",
    ),
]
DraftMin = Annotated[
    int | None,
    o.option(o.MODEL, "--draft-min", "--draft-n-min", metavar="N", help="Fewest tokens to guess at once. Default: 0."),
]
Mmproj = Annotated[
    Path | None,
    o.option(
        o.MODEL,
        "--mmproj",
        metavar="FILE",
        help="The model's projector (mmproj-*.gguf), with which it reads pictures. Default: the one beside the model's"
        " file.",
    ),
]
NoMmproj = Annotated[
    bool,
    o.option(o.MODEL, "--no-mmproj", help="Do not read pictures, though a projector lies beside the model's file."),
]

Files = str | list[str]
"""The file of an option; where a server has several models all files, of which each model gets the one that fits it."""


@dataclass(frozen=True, kw_only=True)
class EngineOptions(OptionRecord):
    """Which model to run, and what runs it. The context and the batch mean something else to each verb."""

    model: o.ModelFile = None
    hub: o.HubModel = None
    threads: o.Threads = None
    kv: o.CacheType = None
    device: o.DeviceName = None
    gpu: o.GpuName = None
    gpu_layers: o.GpuLayers = None
    resident: o.Resident = None
    kernels: o.KernelSet = None
    isa: o.Isa = None
    memory: o.Memory = None
    cache_dir: o.CacheDir = None

    def load_options(self, verbosity: Verbosity = Verbosity.VERBOSE) -> dict[str, Any]:
        """It as keyword arguments of `zinc_rt.load`; what is not given is left out. Raises `UsageError`."""
        device = self.device
        if self.gpu_layers is not None:
            device = _device_for_layers(self.gpu_layers, device, verbosity)
        given = {
            "device": device,
            "threads": self.threads,
            "gpu": self.gpu,
            "resident": self.resident,
            "kernels": self.kernels,
            "isa": self.isa,
            "memory": None if self.memory is None else o.size_bytes("--memory", self.memory),
            "cache_dir": None if self.cache_dir is None else str(self.cache_dir),
            "kv": self.kv,
        }
        return {name: value for name, value in given.items() if value is not None}

    def check_unused(self, flag: str) -> None:
        """Refuse options that say what runs the model, where nothing runs it. Raises `UsageError`."""
        given = {
            "--device": self.device,
            "--gpu": self.gpu,
            "-ngl": self.gpu_layers,
            "--threads": self.threads,
            "--kernels": self.kernels,
            "--isa": self.isa,
            "--memory": self.memory,
            "--resident": self.resident,
        }
        for name, value in given.items():
            if value is not None and (name, value) != ("--device", "emu"):
                raise UsageError(f"{name} is {value}, but {flag} runs nothing; leave it out")


@dataclass(frozen=True, kw_only=True)
class GeneratingOptions(EngineOptions):
    """The same for verbs that generate text."""

    spec: SpecName = None
    model_draft: DraftModel = None
    draft_max: DraftMax = None
    draft_min: DraftMin = None
    mmproj: Mmproj = None
    no_mmproj: NoMmproj = False
    lora: LoraOption = None
    lora_scaled: LoraScaled = None

    def load_options(self, verbosity: Verbosity = Verbosity.VERBOSE) -> dict[str, Any]:
        """See `EngineOptions.load_options`."""
        made = super().load_options(verbosity)
        if self.mmproj is not None and self.no_mmproj:
            raise UsageError("--mmproj and --no-mmproj are both given; give one of them")
        if not self.no_mmproj:
            made["mmproj"] = AUTO if self.mmproj is None else self.projector()
        given: dict[str, Any] = {
            "spec": self.spec,
            "draft_model": None if self.model_draft is None else self.draft(),
            "draft_max": self.draft_max,
            "draft_min": self.draft_min,
        }
        given["lora"] = given_adapters(self.lora, self.lora_scaled) or None
        return made | {name: value for name, value in given.items() if value is not None}

    def projector(self) -> Files:
        """The file of --mmproj."""
        return str(self.mmproj)

    def draft(self) -> Files:
        """The file of --model-draft. Raises what `model_file` raises."""
        return str(model_file(self.model_draft, None))


@dataclass(frozen=True, kw_only=True)
class ContextOptions(OptionRecord):
    """The length of texts, and the part of a prompt that is computed at once."""

    ctx_size: o.CtxSize = None
    batch_size: o.BatchSize = None

    def load_options(self) -> dict[str, Any]:
        """It as keyword arguments of `zinc_rt.load`."""
        return {"n_ctx": self.ctx_size, "n_batch": self.batch_size}


def _device_for_layers(layers: str, device: str | None, verbosity: Verbosity) -> str | None:
    """The device that llama.cpp's -ngl asks for: 0 is the CPU, anything else leaves the choice. Says so in one line.

    Raises `UsageError` when it is no number, or 0 together with a GPU.
    """
    from zinc_rt.backends.devices import ON_GPU, Device, parse_device

    if not (layers in ("all", "auto", "-1") or (layers.isascii() and layers.isdigit())):
        raise UsageError(f"-ngl is {show(layers)}; it must be a whole number, all or auto")
    if layers.strip("0"):
        verbosity.tell(f"zinc: -ngl {layers}: layers are not divided, --device runs all of them", style="dim")
        return device
    if device is not None and parse_device(device).device in ON_GPU:
        raise UsageError(f"-ngl 0 means the CPU, but --device is {device}; give one of them")
    verbosity.tell("zinc: -ngl 0: the CPU runs all layers, as with --device cpu", style="dim")
    return Device.cpu.value
