"""Models in several files, written by the `gguf` package: opened as one, and every way in which they do not fit."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zinc_rt
from tests.cli.tiny import write_tiny_model
from tests.gguf.parts import split
from zinc_rt.gguf import GGMLType, GGUFError, GGUFFile, GGUFWriter, ValueType
from zinc_rt.gguf.errors import FileChanged, MissingKey
from zinc_rt.gguf.part import GGUFPart


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("whole") / "tiny.gguf")


@pytest.fixture
def parts(whole: Path, tmp_path: Path) -> list[Path]:
    made = split(whole, tmp_path / "parts")
    assert [path.name for path in made] == [f"tiny-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    return made


@pytest.fixture
def opened(parts: list[Path]) -> Iterator[GGUFFile]:
    with GGUFFile.open(parts[0]) as file:
        yield file


def test_the_parts_are_one_file(opened: GGUFFile, whole: Path, parts: list[Path]) -> None:
    with GGUFFile.open(whole) as one:
        assert list(opened.tensors) == list(one.tensors)
        for name, tensor in one.tensors.items():
            mine = opened.tensor(name)
            assert (mine.shape, mine.type, mine.nbytes) == (tensor.shape, tensor.type, tensor.nbytes)
            assert np.array_equal(opened.raw(name), one.raw(name))
        assert opened.architecture == one.architecture
        assert list(opened.metadata["tokenizer.ggml.tokens"]) == one.metadata["tokenizer.ggml.tokens"]
    assert opened.file_size == sum(path.stat().st_size for path in parts)
    assert (opened.path, opened.n_parts) == (str(parts[0]), 3)
    assert repr(opened) == f"<GGUFFile {parts[0]}: {len(opened.tensors)} tensors, {len(opened.metadata)} keys>"


def test_what_is_released_is_read_again(opened: GGUFFile) -> None:
    for name in opened.tensors:
        before = np.array(opened.raw(name))
        opened.release(name)
        assert np.array_equal(opened.raw(name), before)


def test_missing_tensors_are_named(opened: GGUFFile) -> None:
    for ask in (opened.raw, opened.release, opened.tensor):
        with pytest.raises(MissingKey, match="has no tensor 'x'; it has 12 tensors"):
            ask("x")


@pytest.mark.parametrize(
    "how",
    [
        {"device": "cpu", "kernels": "native", "threads": 1},
        {"device": "cpu", "kernels": "reference"},
        pytest.param({"device": "emu"}, marks=pytest.mark.slow),
    ],
    ids=lambda how: how.get("kernels", "emu"),
)
def test_a_split_model_runs_like_the_whole_one(how: dict[str, Any], whole: Path, parts: list[Path]) -> None:
    texts = []
    for path in (whole, parts[0]):
        with zinc_rt.load(path, **how) as model:
            texts.append((model.generate("abc", max_tokens=8, temperature=0).token_ids, model.plan.total))
    assert texts[0] == texts[1]


@pytest.fixture(autouse=True)
def _keep_garbage() -> Iterator[None]:
    """Files that earlier tests left open are not closed while a test counts its own."""
    gc.disable()
    yield
    gc.enable()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_closing_closes_all_parts(parts: list[Path]) -> None:
    before = descriptors()
    file = GGUFFile.open(parts[0])
    assert descriptors() == before + 3
    view = file.raw(list(file.tensors)[-1])
    file.close()
    assert view.any()
    del view  # holds its part's mapping, and so a descriptor
    assert descriptors() == before
    with pytest.raises(FileChanged, match="has been closed"):
        file.raw(list(file.tensors)[-1])


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_part_that_is_written_to_is_noticed(number: int, parts: list[Path]) -> None:
    with GGUFFile.open(parts[0]) as file:
        file.check_unchanged()
        with parts[number].open("ab") as changed:
            changed.write(b"x")
        for check in (file.check_unwritten, file.check_unchanged):
            with pytest.raises(FileChanged, match=f"0000{number + 1}-of-00003.gguf: was"):
                check()


def test_a_part_that_is_replaced_is_noticed(parts: list[Path], tmp_path: Path) -> None:
    with GGUFFile.open(parts[0]) as file:
        shutil.copy2(parts[1], tmp_path / "copy")
        os.replace(tmp_path / "copy", parts[1])
        with pytest.raises(FileChanged, match=r"00002-of-00003\.gguf: was replaced"):
            file.check_unchanged()


def refused(path: Path, kind: type[GGUFError], *says: str) -> None:
    """The error is of this kind, says these things in one line, and leaves no file open."""
    before = descriptors()
    with pytest.raises(kind) as caught:
        GGUFFile.open(path)
    assert descriptors() == before
    assert "\n" not in str(caught.value)
    for text in says:
        assert text in str(caught.value)


@pytest.mark.parametrize("number", [2, 3])
def test_another_part_than_the_first(number: int, parts: list[Path]) -> None:
    refused(
        parts[number - 1],
        GGUFError,
        f"tiny-0000{number}-of-00003.gguf: is part {number} of 3 of a split model",
        "open the first part, tiny-00001-of-00003.gguf",
    )


def test_a_part_alone_can_be_asked_for(parts: list[Path]) -> None:
    part = GGUFPart(parts[1])
    assert len(part.tensors) == 5
    part.close()


@pytest.mark.parametrize("number", [2, 3])
def test_a_missing_part(number: int, parts: list[Path]) -> None:
    parts[number - 1].unlink()
    refused(
        parts[0],
        GGUFError,
        f"tiny-0000{number}-of-00003.gguf: cannot be opened: No such file or directory",
        f"it is part {number} of 3 of {parts[0]}",
        "all parts of one download belong into one folder",
    )


def test_a_first_part_with_another_name(parts: list[Path]) -> None:
    renamed = parts[0].rename(parts[0].with_name("model.gguf"))
    refused(renamed, GGUFError, "model.gguf: is part 1 of 3", "must end in -00001-of-00003.gguf")


def test_damaged_parts_are_named(parts: list[Path]) -> None:
    content = parts[1].read_bytes()
    parts[1].write_bytes(content[:-100])
    refused(parts[0], GGUFError, "tiny-00002-of-00003.gguf: ends at byte")
    parts[1].write_bytes(b"")
    refused(parts[0], GGUFError, "tiny-00002-of-00003.gguf: is empty")


def test_two_parts_that_are_the_same_file(parts: list[Path]) -> None:
    shutil.copy(parts[1], parts[2])
    refused(parts[0], GGUFError, f"{parts[2]}: has split.no 1, where part 3 of {parts[0]} has 2")


def test_a_part_of_a_model_in_another_number_of_parts(whole: Path, parts: list[Path], tmp_path: Path) -> None:
    others = split(whole, tmp_path / "others", per_part=3)
    assert len(others) != len(parts)
    shutil.copy(others[1], parts[1])
    refused(parts[0], GGUFError, f"{parts[1]}: has split.count {len(others)}, where part 2", "has 3")


def small_part(path: Path, tensors: dict[str, int], **keys: Any) -> None:
    writer = GGUFWriter(path)
    for key, value in keys.items():
        kind = ValueType.UINT16 if isinstance(value, int) else None
        writer.add(key.replace("__", "."), value, kind)
    for name, n in tensors.items():
        writer.add_tensor(name, np.full(n, len(name), np.float32), GGMLType.F32, (n,))
    writer.write()


@pytest.mark.parametrize(
    ("second", "kind", "says"),
    [
        ({"tensors": {"a": 4}}, GGUFError, "has the tensor 'a', which"),
        ({"tensors": {"b": 4, "c": 4}}, GGUFError, "announces 2 tensors, but its 2 parts have 3"),
        ({"tensors": {}}, GGUFError, "announces 2 tensors, but its 2 parts have 1"),
        ({"split__tensors__count": 3}, GGUFError, "has split.tensors.count 3, where part 2 of"),
        ({"general__name": "other"}, GGUFError, "has general.name 'other', where"),
        ({"general__architecture": "qwen2"}, GGUFError, "has general.architecture 'qwen2', where"),
        ({"split__no": None}, MissingKey, "has no metadata key 'split.no'"),
        ({"split__count": None}, MissingKey, "has no metadata key 'split.count'"),
        ({"split__no": [1]}, GGUFError, "'split.no' holds"),
        ({"split__no": "1"}, GGUFError, "'split.no' holds"),
    ],
)
def test_second_parts_that_do_not_fit(second: dict[str, Any], kind: type[GGUFError], says: str, tmp_path: Path) -> None:
    first = tmp_path / "m-00001-of-00002.gguf"
    common = {"split__count": 2, "split__tensors__count": 2, "general__name": "m", "general__architecture": "llama"}
    small_part(first, {"a": 4}, split__no=0, **common)
    keys = {"tensors": {"b": 4}, "split__no": 1, "split__count": 2, "split__tensors__count": 2, **second}
    tensors = keys.pop("tensors")
    path = tmp_path / "m-00002-of-00002.gguf"
    small_part(path, tensors, **{key: value for key, value in keys.items() if value is not None})
    refused(first, kind, says)


@pytest.mark.parametrize(
    ("keys", "kind", "says"),
    [
        ({"split__count": 513, "split__no": 0}, GGUFError, "is one of 513 parts, the limit is 512"),
        ({"split__count": 2}, MissingKey, "split.no"),
        ({"split__count": 2, "split__no": 2}, GGUFError, "is part 3 of 2 by its key split.no"),
        ({"split__count": "2", "split__no": 0}, GGUFError, "split.count"),
        ({"split__count": [2, 2], "split__no": 0}, GGUFError, "split.count"),
    ],
)
def test_first_parts_that_make_no_sense(keys: dict[str, Any], kind: type[GGUFError], says: str, tmp_path: Path) -> None:
    small_part(tmp_path / "m-00001-of-00002.gguf", {"a": 4}, **keys)
    refused(tmp_path / "m-00001-of-00002.gguf", kind, says)


@pytest.mark.parametrize("count", [0, 1])
def test_a_model_in_one_part_is_a_file_like_others(count: int, tmp_path: Path) -> None:
    small_part(tmp_path / "any.gguf", {"a": 4}, split__count=count, split__no=0)
    with GGUFFile.open(tmp_path / "any.gguf") as file:
        assert list(file.tensors) == ["a"]
