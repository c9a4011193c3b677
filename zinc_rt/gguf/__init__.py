"""GGUF: the container format and the block formats of its tensors.

`GGUFFile` reads, `GGUFWriter` writes, `blocks` converts tensor bytes to numbers and back. Every error is a
`GGUFError`.
"""

from typing import TYPE_CHECKING, Any

from zinc_rt.gguf import blocks
from zinc_rt.gguf.blocks import QuantRows
from zinc_rt.gguf.errors import GGUFError, UnsupportedTensorType
from zinc_rt.gguf.metadata import Metadata, ValueInfo, get
from zinc_rt.gguf.reader import GGUFFile
from zinc_rt.gguf.tensors import TensorInfo
from zinc_rt.gguf.types import SUPPORTED, GGMLType, ValueType

if TYPE_CHECKING:
    from zinc_rt.gguf.writer import GGUFWriter as GGUFWriter

__all__ = [
    "SUPPORTED",
    "GGMLType",
    "GGUFError",
    "GGUFFile",
    "GGUFWriter",
    "Metadata",
    "QuantRows",
    "TensorInfo",
    "UnsupportedTensorType",
    "ValueInfo",
    "ValueType",
    "blocks",
    "get",
]


def __getattr__(name: str) -> Any:
    if name == "GGUFWriter":  # running a model writes no file, so the writer is imported late
        from zinc_rt.gguf.writer import GGUFWriter

        return GGUFWriter
    raise AttributeError(f"module 'zinc_rt.gguf' has no attribute {name!r}")
