"""Kinds of lines that `notify` gets. Those of no kind are for everybody."""

from __future__ import annotations


class Detail(str):
    """A notice that says how things are set up, where nothing is wrong."""

    __slots__ = ()


class Waiting(str):
    """A notice of work that keeps its caller waiting, as compiling does."""

    __slots__ = ()
