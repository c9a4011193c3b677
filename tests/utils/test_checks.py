"""Which values are numbers, and how messages show the others."""

from __future__ import annotations

import array
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from zinc_rt.errors import UsageError
from zinc_rt.utils import checks

NO_NUMBERS = [True, None, "1", b"1", bytearray(b"1"), [1], (1,), {1}, np.True_, np.array([1]), object()]


@pytest.mark.parametrize("value", [0, -3, 10**30, np.int8(-3), np.uint64(2**64 - 1), np.array(7)])
def test_whole_numbers(value: object) -> None:
    number = checks.whole(value)
    assert type(number) is int
    assert number == value


@pytest.mark.parametrize("value", [*NO_NUMBERS, 1.0, np.float32(1), Fraction(1)])
def test_what_is_no_whole_number(value: object) -> None:
    assert checks.whole(value) is None


@pytest.mark.parametrize(
    "value", [0, 1.5, -2, np.float32(0.5), np.int64(3), Fraction(1, 4), float("inf"), np.array(2.5)]
)
def test_real_numbers(value: object) -> None:
    number = checks.real(value)
    assert type(number) is float
    assert number == value


@pytest.mark.parametrize("value", [*NO_NUMBERS, 1j, 10**400])
def test_what_is_no_real_number(value: object) -> None:
    assert checks.real(value) is None


@pytest.mark.parametrize(
    "values",
    [[1, 2], (1, 2), range(1, 3), np.array([1, 2], np.uint16), array.array("i", [1, 2]), iter([1, np.int8(2)])],
)
def test_sequences_of_whole_numbers(values: object) -> None:
    assert checks.whole_numbers("ids", values) == [1, 2]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("12", "ids are '12', they must be a sequence"),
        (b"abc", "ids are b'abc', they"),
        (memoryview(b"abc"), "they must be a sequence"),
        ({1, 2}, "they must be a sequence"),
        ({1: 2}, "they must be a sequence"),
        (3, "ids are 3, they"),
        (None, "ids are None, they"),
        ([1, True], "number 2 of them is True"),
        ([1.0], "number 1 of them is 1.0"),
        (np.zeros((2, 2), int), r"number 1 of them is array\(\[0, 0\]\)"),
        (np.zeros(2), "number 1 of them is np.float64"),
    ],
)
def test_what_is_no_sequence_of_whole_numbers(values: object, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        checks.whole_numbers("ids", values)


@pytest.mark.parametrize("value", [1, 5, np.int32(5)])
def test_whole_between(value: object) -> None:
    assert checks.whole_between("n", value, 1, 5) == value
    for wrong in (0, 6, True, 1.0, "1", None, -(10**5000)):
        with pytest.raises(UsageError, match=r"^n is .{1,80}, it must be a whole number between 1 and 5$"):
            checks.whole_between("n", wrong, 1, 5)


def test_paths() -> None:
    assert checks.path_text("p", "a/b") == checks.path_text("p", b"a/b") == checks.path_text("p", Path("a/b")) == "a/b"
    for wrong in ("", b"", 3, None, True):
        with pytest.raises(UsageError, match=r"^p is .*, it must be a path$"):
            checks.path_text("p", wrong)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a", "'a'"),
        ("a\n\x1b[31m", r"'a\n\x1b[31m'"),
        ("x" * 10**7, "'" + "x" * 77 + "...'"),
        (10**5000, "a huge int"),
        ([0] * 10**7, "[" + "0, " * 25 + "0..."),
        (np.zeros((2, 2)), "array([[0., 0.], [0., 0.]])"),
        (b"a\n", r"b'a\n'"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_values_in_messages_are_short_and_printable(value: object, shown: str) -> None:
    assert checks.show(value) == shown
