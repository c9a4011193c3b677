"""Split models, written by the `gguf` package."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from zinc_rt.gguf import GGUFFile


def split(whole: Path, folder: Path, name: str = "tiny", per_part: int = 5) -> list[Path]:
    """The model in parts of so many tensors."""
    folder.mkdir(exist_ok=True)
    with GGUFFile.open(whole) as file:
        writer = gguf.GGUFWriter(folder / f"{name}.gguf", file.architecture, split_max_tensors=per_part)
        for key, value in file.metadata.items():
            if key == "general.architecture":
                continue
            if isinstance(value, (list, np.ndarray)):
                writer.add_array(key, value if isinstance(value, list) else value.tolist())
            else:
                writer.add_key_value(key, value, gguf.GGUFValueType(int(file.metadata.info(key).type)))
        for tensor in file.tensors.values():
            writer.add_tensor(tensor.name, np.array(file.raw(tensor.name)).view("<f4").reshape(tensor.shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.glob(f"{name}-*.gguf"))
