"""Write `zinc_rt/formats/grids.py` from the `gguf` package's tables:

python -m tests.formats.grids > zinc_rt/formats/grids.py
"""

from __future__ import annotations

import base64
import sys

import gguf
import numpy as np

NAMES = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S")
HEAD = '''\
"""Tables of the formats that store indices of vectors: an entry has the sizes of 8 elements (IQ2) or of 4 (IQ3), or 8
numbers from -1 to 1 with 1 added (IQ1).

Written by `python -m tests.formats.grids > zinc_rt/formats/grids.py`; a test compares this file with the `gguf`
package, which the numbers are taken from. They come with this notice:

    MIT License. Copyright (c) 2023 Georgi Gerganov

    Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
    documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
    rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to
    permit persons to whom the Software is furnished to do so, subject to the following conditions:

    The above copyright notice and this permission notice shall be included in all copies or substantial portions of
    the Software.

    THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
    WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS
    OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
    OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class Packed(NamedTuple):
    """A table as text. entries, width: vectors and elements of one; values: the sizes that occur; text: base 85 of
    16-bit numbers, one for a vector, which hold the places of its elements in `values`, 16 / width bits each at most.
    """

    entries: int
    width: int
    values: tuple[int, ...]
    text: str

    def words(self) -> tuple[int, ...]:
        """The sizes as bytes, four in a word: width / 4 words for each entry."""
        bits = (len(self.values) - 1).bit_length()
        raw = base64.b85decode(self.text)
        codes = [raw[i] | raw[i + 1] << 8 for i in range(0, len(raw), 2)]
        sizes = bytes(self.values[code >> bits * i & (1 << bits) - 1] for code in codes for i in range(self.width))
        return tuple(int.from_bytes(sizes[i : i + 4], "little") for i in range(0, len(sizes), 4))


@functools.cache
def words(name: str) -> tuple[int, ...]:
    """The table of a format, as `Packed.words`."""
    return PACKED[name].words()


'''


def packed(name: str) -> str:
    """One table as an entry of `PACKED`."""
    table = gguf.quants._type_traits[gguf.GGMLQuantizationType[name]]
    table.init_grid()
    entries, width = table.grid_shape
    least = min(0, *table.grid_map)
    values = tuple(value - least for value in table.grid_map)
    grid = table.grid.reshape(entries, width).astype(np.int64) - least
    places = np.searchsorted(values, grid)
    bits = (len(values) - 1).bit_length()
    codes = (places << bits * np.arange(width)).sum(axis=1).astype("<u2")
    text = base64.b85encode(codes.tobytes()).decode()
    lines = "\n".join(f'            "{text[i : i + 100]}"' for i in range(0, len(text), 100))
    parts = f"            {entries},\n            {width},\n            {values},\n{lines},\n"
    return f'        "{name}": Packed(\n{parts}        ),\n'


def module() -> str:
    """The file's text."""
    tables = "".join(packed(name) for name in NAMES)
    return f"{HEAD}PACKED: Final[Mapping[str, Packed]] = MappingProxyType(\n    {{\n{tables}    }}\n)\n"


if __name__ == "__main__":
    sys.stdout.write(module())
