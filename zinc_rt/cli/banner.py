"""The first line of `run` and `chat`: model, device and context; and a warning if one of them is unusual."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from zinc_rt.backends.devices import Device
from zinc_rt.cli.terminal import one_line

if TYPE_CHECKING:
    from zinc_rt.cli.verbosity import Verbosity
    from zinc_rt.gguf import GGUFFile
    from zinc_rt.llm.model import Model


def show_banner(model: Model, verbosity: Verbosity, threads: int | None, more: str = "") -> None:
    """Say what runs, in one line, and a line for each thing that is odd. threads: as asked for. more: behind it all."""
    verbosity.tell(banner(model) + more, style="dim")
    for line in warnings(model, threads):
        verbosity.warn(line)


def banner(model: Model) -> str:
    """As `Qwen3 0.6B Q8_0 on CPU (2 threads), context 4096 of 40960`."""
    trained = model.info.n_ctx_train
    context = f"context {model.n_ctx}" + (f" of {trained}" if trained > model.n_ctx else "")
    return one_line(f"{_named(model)} on {_place(model)}, {context}")


def warnings(model: Model, threads: int | None) -> Iterator[str]:
    """What works and is worth a line. threads: as asked for."""
    if model.n_ctx > model.info.n_ctx_train:
        yield (
            f"-c {model.n_ctx} is beyond the {model.info.n_ctx_train} tokens of context that the model was trained on;"
            " behind them its text gets worse"
        )
    if threads is not None and model.device is Device.cpu:
        from zinc_rt.backends.cpu.cores import default_threads

        cores = default_threads()
        if threads > cores:
            there = f"{cores} cores" if cores > 1 else "one core"
            yield f"-t {threads} is more than the {there} that this process may use; the threads wait for each other"


def _named(model: Model) -> str:
    kind = _format(model.file)
    return model.name if not kind or kind.lower() in model.name.lower() else f"{model.name} {kind}"


def _place(model: Model) -> str:
    features, how = model.engine.features, model.engine.description.partition(": ")[2]
    if model.device is Device.cpu:
        threads = f"{features.threads} thread{'' if features.threads == 1 else 's'}"
        return f"CPU ({threads})" if features.kernels == "native" else f"CPU (reference kernels, {threads})"
    if model.device is Device.emu:
        return f"an emulated GPU ({how.rpartition('emulated ')[2]})"
    return f"GPU ({how.rpartition(' on ')[2]})"


def _format(file: GGUFFile) -> str:
    """The usual name of the format of the weights: the mixture's where the file is one, else that of the most bytes."""
    sizes: Counter[str] = Counter()
    for tensor in file.tensors.values():
        sizes[tensor.type.name] += tensor.nbytes
    if not sizes:
        return ""
    name = sizes.most_common(1)[0][0]
    if not name.endswith("_K"):
        return name
    from zinc_rt.quantizing.presets import PRESETS

    number = file.metadata.get("general.file_type")
    return next((p.name for p in PRESETS.values() if p.file_type == number and p.base.name == name), name)
