"""A Hugging Face folder: its JSON files, and the tensors of its safetensors files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from zinc_rt.converting.errors import ConvertError
from zinc_rt.converting.safetensors import Stored, open_safetensors
from zinc_rt.gguf.source import FileBytes
from zinc_rt.utils.checks import printable, show
from zinc_rt.utils.closing import Closing

INDEX: Final = "model.safetensors.index.json"
_LARGEST_JSON: Final = 256 << 20
"""Bytes of a JSON file: tokenizers take up to some 35 MB."""
_OTHER_WEIGHTS: Final = ("consolidated", "adapter", "training", "optimizer")
"""Beginnings of safetensors files that are no part of the model, or the same model under other names."""


class ModelFolder(Closing):
    """An open folder. A context manager.

    Attributes:
        path: of the folder.
        config: of config.json.
        tensors: all, by their names in the files.
    """

    def __init__(self, path: Path) -> None:
        """Raises `ConvertError`, FileAccessError."""
        self.path, self.shown = path, printable(str(path))
        self.tensors: dict[str, Stored] = {}
        self._files: list[FileBytes] = []
        if not path.is_dir():
            what = "is no folder" if path.exists() else "is not there"
            raise ConvertError(f"{self.shown} {what}; name the folder with config.json and *.safetensors")
        config = self.json("config.json")
        if config is None:
            raise ConvertError(
                f"{self.shown} has no config.json; name a folder as `save_pretrained` writes it and as the hub has it"
                + (" (this one holds an adapter; merge it into its model first)" if self._has("adapter_*") else "")
            )
        self.config: Mapping[str, Any] = config
        try:
            self._open(self._weights())
        except BaseException:
            self.close()
            raise

    def _has(self, pattern: str) -> bool:
        return any(self.path.glob(pattern))

    @property
    def paths(self) -> tuple[str, ...]:
        """Of the files with tensors."""
        return tuple(file.path for file in self._files)

    def json(self, name: str) -> dict[str, Any] | None:
        """The object in a JSON file, None where there is no such file. Raises `ConvertError`."""
        value = self._json(name)
        if value is not None and not isinstance(value, dict):
            raise ConvertError(f"{printable(str(self.path / name))} is no JSON object")
        return value

    def json_list(self, name: str) -> list[Any]:
        """The list in a JSON file, an empty one where there is no such file. Raises `ConvertError`."""
        value = self._json(name)
        if value is not None and not isinstance(value, list):
            raise ConvertError(f"{printable(str(self.path / name))} is no JSON list")
        return value or []

    def _json(self, name: str) -> Any:
        """What is in a JSON file, None where there is no such file. Raises `ConvertError`."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConvertError(f"{printable(str(self.path / name))} is no JSON: {error}") from error

    def text(self, name: str) -> str | None:
        """The text in a file, None where there is no such file. Raises `ConvertError`."""
        raw = self.raw(name)
        try:
            return None if raw is None else raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ConvertError(f"{printable(str(self.path / name))} is not UTF-8 at byte {error.start}") from error

    def raw(self, name: str) -> bytes | None:
        """The bytes in a file, None where there is no such file. Raises `ConvertError`."""
        path = self.path / name
        try:
            if not path.is_file():
                return None
            if path.stat().st_size > _LARGEST_JSON:
                raise ConvertError(f"{printable(str(path))} has more than {_LARGEST_JSON} bytes; it is damaged")
            return path.read_bytes()
        except OSError as error:
            raise ConvertError(f"{printable(str(path))} cannot be read: {error.strerror}") from error

    def _weights(self) -> Sequence[str]:
        """The names of the files with tensors."""
        index = self.json(INDEX)
        if index is not None:
            listed = index.get("weight_map")
            if not isinstance(listed, dict) or not listed or not all(type(name) is str for name in listed.values()):
                raise ConvertError(f"{self.shown}/{INDEX} has no weight_map of names and files")
            names = sorted(set(listed.values()))
            for name in names:
                if name != Path(name).name:
                    raise ConvertError(f"{self.shown}/{INDEX} names the file {show(name)} outside of the folder")
                if not (self.path / name).is_file():
                    raise ConvertError(f"{self.shown} lacks {printable(name)}, which {INDEX} names; fetch it again")
            return names
        names = sorted(path.name for path in self.path.glob("*.safetensors"))
        if "model.safetensors" in names:
            return ["model.safetensors"]
        names = [name for name in names if not name.startswith(_OTHER_WEIGHTS)]
        if names:
            return names
        if self._has("*.bin") or self._has("*.pt") or self._has("*.pth"):
            raise ConvertError(
                f"{self.shown} has its weights as pickles (*.bin, *.pt), which are programs and not read; save them as"
                " safetensors first"
            )
        raise ConvertError(f"{self.shown} has no *.safetensors; fetch the model's weights")

    def _open(self, names: Sequence[str]) -> None:
        for name in names:
            source, tensors = open_safetensors(self.path / name)
            self._files.append(source)
            for tensor in tensors.values():
                if tensor.name in self.tensors:
                    raise ConvertError(f"{self.shown}: tensor {show(tensor.name)} is in two files")
                self.tensors[tensor.name] = tensor
        listed = (self.json(INDEX) or {}).get("weight_map", {})
        lost = next((name for name in listed if name not in self.tensors), None)
        if lost is not None:
            raise ConvertError(f"{self.shown}: no file has tensor {show(lost)}, which {INDEX} names; fetch them again")

    def check_unwritten(self) -> None:
        """Raise FileChanged when a file with tensors was written to since it was opened."""
        for file in self._files:
            file.check_unwritten()

    def close(self) -> None:
        """Release the files."""
        for file in self._files:
            file.close()
