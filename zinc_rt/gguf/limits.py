"""Upper bounds on what a file may ask of its reader, each well above any published model.

They keep the time and memory that a hostile file can cost small: without them a count of 2^60 in a sparse
file would be believed.
"""

from __future__ import annotations

from typing import Final

MAX_METADATA_BYTES: Final = 128 << 20  # everything before the tensor data; 152k tokens with merges take 4 MB
MAX_KEYS: Final = 1 << 16
MAX_TENSORS: Final = 1 << 16
MAX_PARTS: Final = 512  # files of a split model, which are all open at once
MAX_KEY_BYTES: Final = (1 << 16) - 1  # set by the specification
MAX_NAME_BYTES: Final = 1024  # ggml itself stops at 63
MAX_NAMES_TOTAL_BYTES: Final = 16 << 20  # all keys and tensor names together
MAX_STRINGS: Final = 1 << 21  # strings in arrays, over the whole file; 152k tokens with merges are 300k
MAX_NESTED_ARRAYS: Final = 1 << 16  # arrays inside arrays, over the whole file
MAX_DEPTH: Final = 8  # arrays inside arrays inside arrays...
MAX_DIMS: Final = 4  # of a tensor, set by ggml
MAX_ALIGNMENT: Final = 1 << 30
