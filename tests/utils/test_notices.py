"""Who hears what a load has to say where nobody asked for it."""

from __future__ import annotations

import io
import logging
import sys
from types import ModuleType

import pytest

from zinc_rt.llm.load import _log
from zinc_rt.utils.notices import Waiting


@pytest.mark.parametrize("place", ["terminal", "notebook", "pipe", "terminal with a log"])
def test_who_waits_is_told_why(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a terminal and in a notebook, unless the log is shown there anyway; other lines go to the log alone."""
    told = io.StringIO()
    monkeypatch.setattr(told, "isatty", lambda: place.startswith("terminal"))
    monkeypatch.setattr(sys, "stderr", told)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    if place == "notebook":
        monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    logger = logging.getLogger("zinc_rt")
    level = logging.INFO if place.endswith("log") else logging.WARNING
    monkeypatch.setattr(logger, "isEnabledFor", lambda asked: asked >= level)
    _log("device cpu")
    _log(Waiting("compiling 3 kernels for avx2"))
    expected = "zinc_rt: compiling 3 kernels for avx2\n" if place in ("terminal", "notebook") else ""
    assert told.getvalue() == expected
