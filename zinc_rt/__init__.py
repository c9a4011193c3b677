"""ZINC_RT: an LLM runtime that reads a GGUF file and gives the same bits on every device.

    import zinc_rt

    with zinc_rt.load() as model:  # the model inside the package, or load("model.gguf")
        print(model.generate("Once upon a time"))

docs/use/python.md is the guide. Names are imported when they are first used: importing the package touches no
device, file or environment variable.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any, Unpack

__version__ = "0.2.0"

if TYPE_CHECKING:
    from zinc_rt import engine as engine
    from zinc_rt import kernels as kernels
    from zinc_rt import lang as lang
    from zinc_rt import seed as seed
    from zinc_rt.engine.engine import Device as Device
    from zinc_rt.engine.engine import Engine as Engine
    from zinc_rt.engine.engine import Options as Options
    from zinc_rt.engine.options import CacheOptions as CacheOptions
    from zinc_rt.engine.options import DeviceOptions as DeviceOptions
    from zinc_rt.errors import UsageError as UsageError
    from zinc_rt.errors import ZincError as ZincError
    from zinc_rt.hub.pull import pull as pull
    from zinc_rt.llm.async_model import AsyncModel as AsyncModel
    from zinc_rt.llm.chat import ChatAnswer as ChatAnswer
    from zinc_rt.llm.chat import ChatChunk as ChatChunk
    from zinc_rt.llm.guard import ModelClosed as ModelClosed
    from zinc_rt.llm.load import load as load
    from zinc_rt.llm.model import Model as Model
    from zinc_rt.sampling.generation import Chunk as Chunk
    from zinc_rt.sampling.generation import Generation as Generation
    from zinc_rt.sampling.generation import Stats as Stats
    from zinc_rt.sampling.generation import TokenLogprob as TokenLogprob
    from zinc_rt.sampling.params import SamplingOverrides
    from zinc_rt.sampling.params import SamplingParams as SamplingParams
    from zinc_rt.sampling.processors import LogitsProcessor as LogitsProcessor
    from zinc_rt.seed import cpu_ring as cpu_ring
    from zinc_rt.seed import cs as cs
    from zinc_rt.seed import fast_pool as fast_pool
    from zinc_rt.seed import ir_graph as ir_graph
    from zinc_rt.seed import ir_op as ir_op
    from zinc_rt.seed import kfd as kfd
    from zinc_rt.seed import kmd as kmd
    from zinc_rt.seed import pm4_packet as pm4_packet
    from zinc_rt.seed import ring as ring
    from zinc_rt.seed import umq as umq
    from zinc_rt.seed.engine import Tier as Tier
    from zinc_rt.speculation.options import DraftOptions as DraftOptions

_NAMES = {
    "load": "zinc_rt.llm.load",
    "pull": "zinc_rt.hub.pull",
    "Model": "zinc_rt.llm.model",
    "AsyncModel": "zinc_rt.llm.async_model",
    "DeviceOptions": "zinc_rt.engine.options",
    "CacheOptions": "zinc_rt.engine.options",
    "DraftOptions": "zinc_rt.speculation.options",
    "SamplingParams": "zinc_rt.sampling.params",
    "Generation": "zinc_rt.sampling.generation",
    "Chunk": "zinc_rt.sampling.generation",
    "Stats": "zinc_rt.sampling.generation",
    "TokenLogprob": "zinc_rt.sampling.generation",
    "ChatAnswer": "zinc_rt.llm.chat",
    "ChatChunk": "zinc_rt.llm.chat",
    "LogitsProcessor": "zinc_rt.sampling.processors",
    "ZincError": "zinc_rt.errors",
    "UsageError": "zinc_rt.errors",
    "ModelClosed": "zinc_rt.llm.guard",
    "Engine": "zinc_rt.engine.engine",
    "Options": "zinc_rt.engine.engine",
    "Device": "zinc_rt.engine.engine",
    "Tier": "zinc_rt.seed.engine",
}

_MODULES = {
    "engine": "zinc_rt.engine",
    "kernels": "zinc_rt.kernels",
    "lang": "zinc_rt.lang",
    "seed": "zinc_rt.seed",
    "ir_op": "zinc_rt.seed.ir_op",
    "ir_graph": "zinc_rt.seed.ir_graph",
    "kmd": "zinc_rt.seed.kmd",
    "ring": "zinc_rt.seed.ring",
    "cpu_ring": "zinc_rt.seed.cpu_ring",
    "umq": "zinc_rt.seed.umq",
    "kfd": "zinc_rt.seed.kfd",
    "cs": "zinc_rt.seed.cs",
    "pm4_packet": "zinc_rt.seed.pm4_packet",
    "fast_pool": "zinc_rt.seed.fast_pool",
}

# What a program needs comes first, then what lies beneath. Names behind "seed" are its pages and its tier; they keep
# their old places up here, and `dir` lists them in `zinc_rt.seed` alone.
__all__ = [  # noqa: RUF022
    "load",
    "pull",
    "generate",
    "Model",
    "AsyncModel",
    "DeviceOptions",
    "CacheOptions",
    "DraftOptions",
    "SamplingParams",
    "Generation",
    "Chunk",
    "Stats",
    "TokenLogprob",
    "ChatAnswer",
    "ChatChunk",
    "LogitsProcessor",
    "ZincError",
    "UsageError",
    "ModelClosed",
    "Engine",
    "Options",
    "Device",
    "__version__",
    "engine",
    "kernels",
    "lang",
    "seed",
    "Tier",
    "cpu_ring",
    "cs",
    "fast_pool",
    "ir_graph",
    "ir_op",
    "kfd",
    "kmd",
    "pm4_packet",
    "ring",
    "umq",
]


def generate(prompt: str, path: str | None = None, **parameters: Unpack[SamplingOverrides]) -> str:
    """Load a model, generate after a prompt, and close the model. For more than one prompt, `load` once.

    Args:
        prompt: a text.
        path: the GGUF file, or a downloaded model by its name; None for the model inside the package.
        parameters: fields of `SamplingParams`.

    Returns:
        The text behind the prompt.

    Raises:
        What `load` and `Model.generate` raise.
    """
    from zinc_rt.llm.load import load

    with load(path) as model:
        return model.generate(prompt, **parameters).text


class _Pages:
    """Finds the modules of `_MODULES` under these names, too: `import zinc_rt.kmd` gives the module `zinc_rt.seed.kmd`
    itself, not a second one with classes of its own.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The spec of a name below a page; None for all others."""
        package, _, below = name.partition(".")
        page, dot, rest = below.partition(".")
        real = _MODULES.get(page) if package == __name__ else None
        if real is None or real == f"{__name__}.{page}":
            return None
        return ModuleSpec(name, _Pages, origin=f"{real}{dot}{rest}")  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> Any:
        """The module that the name stands for."""
        module = importlib.import_module(str(spec.origin))
        spec.loader_state = module.__spec__
        return module

    @staticmethod
    def exec_module(module: Any) -> None:
        """Give the module its own spec back, which the import replaced."""
        module.__spec__ = module.__spec__.loader_state


sys.meta_path.insert(0, _Pages)  # before the one that reads folders: a page's submodules must not be read twice


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'zinc_rt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__[: __all__.index("seed") + 1]
