"""The options that several verbs share, with llama.cpp's names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from zinc_rt.errors import UsageError

PROMPT: Final = "Prompt"
MODEL: Final = "Model"
SAMPLING: Final = "Choosing tokens"
LIMITS: Final = "When to stop"
OUTPUT: Final = "Output"
OTHER: Final = "Other"

_debug = False


def debug_wanted() -> bool:
    """Whether --debug was given."""
    return _debug


def _set_debug(value: bool) -> bool:
    global _debug  # noqa: PLW0603  one process runs one command
    _debug = _debug or value
    return value


def _devices(incomplete: str) -> list[str]:
    """Shell completion of --device: what this machine has. A GPU's interfaces are offered where there is one."""
    from zinc_rt.backends.devices import BY_DRIVER, NAMES
    from zinc_rt.backends.diagnostics.driver_trials import DRIVERS
    from zinc_rt.backends.probe import find_gpus
    from zinc_rt.utils.linux import host

    device, at, _ = incomplete.partition("@")
    gpus = find_gpus(host())
    missing = [device.value for device in BY_DRIVER if not DRIVERS[device].find()[0]]
    found = [name for name in NAMES if (gpus or not name.startswith("gpu")) and name not in missing]
    if at:
        cards = [card for gpu in gpus for card in (gpu.short, gpu.pci) if card]
        found = [f"{device}@{card}" for card in cards]
    return [name for name in found if name.startswith(incomplete)]


def downloaded() -> list[str]:
    """Names of downloaded models. Where none fits, shells offer files."""
    from zinc_rt.hub.cached import cached_models

    return [model.name for model in cached_models()]


def emulated_gpus() -> Iterable[str]:
    """Names of GPUs that can be emulated."""
    from amdgpu_emu.models import MODELS

    return MODELS


def predicted_gpus() -> Iterable[str]:
    """Names of GPUs whose speed can be predicted."""
    from zinc_rt.perf_model.published import PUBLISHED

    return [*emulated_gpus(), *PUBLISHED]


def _levels() -> list[str]:
    """Instruction-set levels of this machine."""
    from zinc_rt.lang.target import host_targets

    return [target.name for target in host_targets()]


def _resident_uses() -> Iterable[str]:
    from zinc_rt.backends.devices import RESIDENT_USES

    return RESIDENT_USES


def completes(values: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """A shell's completion of an option that has one of these values."""

    def complete(incomplete: str) -> list[str]:
        return [value for value in values() if value.startswith(incomplete)]

    return complete


def option(panel: str, *names: str, **about: Any) -> Any:
    """An option in a panel of the help, whose text says what holds where the option is not given."""
    return typer.Option(*names, rich_help_panel=panel, show_default=False, **about)


Debug = Annotated[bool, option(OTHER, "--debug", callback=_set_debug, help="Show the full trace of an error.")]

ModelFile = Annotated[
    Path | None,
    option(
        MODEL,
        "-m",
        "--model",
        metavar="FILE",
        autocompletion=completes(downloaded),
        help="GGUF model file, or a downloaded model by its name (`zinc list`). Default: the small story model inside"
        " the package.",
    ),
]
HubModel = Annotated[
    str | None,
    option(
        MODEL,
        "-hf",
        "--hf-repo",
        metavar="REPO[:QUANT]",
        help="A model of the Hugging Face hub, as Qwen/Qwen3-8B-GGUF:Q4_K_M; it is downloaded if it is missing.",
    ),
]
CtxSize = Annotated[
    int | None,
    option(
        MODEL,
        "-c",
        "--ctx-size",
        metavar="N",
        help="Context in tokens, prompt and text together. Default: the model's own, at most 4096.",
    ),
]
Threads = Annotated[
    int | None,
    option(
        MODEL,
        "-t",
        "--threads",
        metavar="N",
        help="Threads; the text does not depend on it. Default: the physical cores within the control group's limit.",
    ),
]
KernelSet = Annotated[
    str | None,
    option(
        MODEL,
        "--kernels",
        metavar="native|reference",
        autocompletion=completes(lambda: ("native", "reference")),
        help="Kernels of the CPU engine: compiled for this machine, or the plain NumPy ones, same text but slow."
        " Default: native, or reference where `zinc check` lists no level.",
    ),
]
Isa = Annotated[
    str | None,
    option(
        MODEL,
        "--isa",
        metavar="LEVEL",
        autocompletion=completes(_levels),
        help="Instruction-set level of native kernels; `zinc check` lists them. Default: the best of this machine.",
    ),
]
BatchSize = Annotated[
    int | None,
    option(
        MODEL,
        "-b",
        "--batch-size",
        metavar="N",
        help="Prompt tokens computed at once; the text does not depend on it. Default: 512 with native kernels and"
        " on a GPU, else 64.",
    ),
]
CacheType = Annotated[
    str | None,
    option(
        MODEL,
        "--kv",
        metavar="f16|q8_0",
        autocompletion=completes(lambda: ("f16", "q8_0")),
        help="Format of the KV cache: q8_0 takes half the memory of f16, at a small loss of precision. Default: f16.",
    ),
]
DeviceName = Annotated[
    str | None,
    option(
        MODEL,
        "--device",
        metavar="NAME",
        autocompletion=_devices,
        help="The device that runs the model: cpu, gpu, one interface of a GPU (gpu:cs, gpu:kfd, gpu:umq), emu"
        " (an emulated GPU) or auto, the best that works; `zinc check` tries them. A card may follow:"
        " gpu@renderD129, gpu:cs@03:00.0. Default: $ZINC_RT_TIER, else auto.",
    ),
]
GpuName = Annotated[
    str | None,
    option(
        MODEL,
        "--gpu",
        metavar="NAME",
        autocompletion=completes(emulated_gpus),
        help="The GPU that --device emu emulates; `zinc emu list` has them. Default: r9700.",
    ),
]
GpuLayers = Annotated[
    str | None,
    option(
        MODEL,
        "-ngl",
        "--n-gpu-layers",
        "--gpu-layers",
        metavar="N",
        help="For command lines of llama.cpp: 0 runs all layers on the CPU, any other number all of them on --device.",
    ),
]
Resident = Annotated[
    str | None,
    option(
        MODEL,
        "--resident",
        metavar="auto|always|never",
        autocompletion=completes(_resident_uses),
        help="Whether a step of few tokens on a GPU is one program that stays until it is done: auto where `zinc check"
        " --gpu` has proven it and it should be faster. Default: auto.",
    ),
]

SystemPrompt = Annotated[
    str | None,
    option(
        PROMPT,
        "-sys",
        "--system",
        "--system-prompt",
        metavar="TEXT",
        help="Instruction that comes before the conversation.",
    ),
]
SystemFile = Annotated[
    str | None, option(PROMPT, "-sysf", "--system-prompt-file", metavar="FILE", help="The same from a file.")
]
Memory = Annotated[
    str | None,
    option(
        MODEL,
        "--memory",
        metavar="SIZE",
        help="Memory that the engine may use on the CPU, as 6G or 900M. A larger model's weights are written to a file"
        " beside the compiled kernels, once, and steps read from it what is not in memory. Default: what the machine"
        " has; a larger model is refused.",
    ),
]
CacheDir = Annotated[
    Path | None,
    option(
        OTHER,
        "--cache-dir",
        metavar="DIR",
        help="Folder of compiled kernels. Default: $ZINC_RT_CACHE_DIR, else ~/.cache/zinc_rt.",
    ),
]
Report = Annotated[
    Path | None,
    option(
        OUTPUT,
        "--report",
        metavar="FILE",
        help="Try every interface of every AMD GPU with real kernels, and write the results as JSON, to be sent.",
    ),
]
TryGpus = Annotated[
    bool,
    typer.Option(
        "--gpu",
        help="Try all interfaces of all GPUs: also what failed before, and cards that drive a display. A GPU that hangs"
        " is reset, with the desktop on it.",
        show_default=False,
    ),
]
Soak = Annotated[
    float | None,
    typer.Option(
        "--soak",
        metavar="SECONDS",
        help="With --gpu: repeat the test for so long on each interface that works. From 60 on, --device auto and gpu"
        " try the fastest one first from then on.",
        show_default=False,
    ),
]
Json = Annotated[bool, option(OUTPUT, "--json", help="Print JSON.")]


def choose_file(positional: Path | None, option: Path | None) -> Path | None:
    """The model file of verbs that take it with or without -m. Raises `UsageError` for both at once."""
    if positional is not None and option is not None:
        raise UsageError(f"two model files given ({positional} and -m {option}); pass only one")
    return positional if positional is not None else option


def size_bytes(option: str, text: str) -> int:
    """An option's size, as `parse_bytes` takes it, above 0. Raises `UsageError`."""
    from zinc_rt.mem.plan import parse_bytes

    try:
        size = parse_bytes(text)
    except UsageError as error:
        raise UsageError(f"{option}: {error}") from None
    if not size:
        raise UsageError(f"{option} is {text!r}; it must be above 0")
    return size
