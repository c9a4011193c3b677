"""The pages under the package's name: as attributes, by `import`, and as the same module either way."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import zinc_rt

PAGES = ["ir_op", "ir_graph", "kmd", "ring", "cpu_ring", "umq", "kfd", "cs", "pm4_packet", "fast_pool"]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_imported_by_either_name(page: str) -> None:
    real = importlib.import_module(f"zinc_rt.seed.{page}")
    spec = real.__spec__
    sys.modules.pop(f"zinc_rt.{page}", None)
    assert importlib.import_module(f"zinc_rt.{page}") is real
    assert getattr(zinc_rt, page) is real
    assert real.__spec__ is spec
    assert real.__name__ == f"zinc_rt.seed.{page}"


def test_a_module_of_a_page_is_not_read_twice() -> None:
    code = (
        "from zinc_rt.kfd.bring_up import BringUpResult as a; "
        "from zinc_rt.seed.kfd.bring_up import BringUpResult as b; assert a is b; "
        "import zinc_rt.kmd, zinc_rt.seed.kmd; "
        "assert zinc_rt.kmd is zinc_rt.seed.kmd; from zinc_rt.kmd import query_compute_userq"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_other_names_are_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"zinc_rt\.nothing"):
        importlib.import_module("zinc_rt.nothing")
    with pytest.raises(ModuleNotFoundError, match=r"zinc_rt\.seed\.kfd\.nothing"):
        importlib.import_module("zinc_rt.kfd.nothing")
