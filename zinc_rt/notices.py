"""`Detail`: a line for whoever asks what runs and why. Other lines that `notify` gets are for everybody."""

from __future__ import annotations


class Detail(str):
    """A notice that says how things are set up, where nothing is wrong."""

    __slots__ = ()
