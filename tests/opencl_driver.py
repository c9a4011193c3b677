"""Intel's OpenCL driver for processors, from PyPI (the extra `gpu-test`): one that nobody here wrote."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from contextlib import suppress
from pathlib import Path

_VENDORS = Path("/etc/OpenCL/vendors")
QUICKLY = "-cl-opt-disable"
"""A third of the time to build a kernel. Sub-groups of 32 are vectors all the same."""


def library() -> Path | None:
    """The driver's library; None where the package is not installed."""
    if importlib.util.find_spec("pyopencl") is None or importlib.util.find_spec("numpy") is None:
        return None
    found = importlib.util.find_spec("pyopencl")
    assert found is not None
    assert found.origin is not None
    # The wheel's files lie in `lib` of the environment: two folders above site-packages.
    path = Path(found.origin).parents[3] / "libintelocl.so"
    return path if path.exists() else None


def announce(*, beside: bool = False) -> None:
    """Tell OpenCL's loader of the driver, which it asks for once in a process. The wheel's own file names a place on
    the machine of its maker. beside: keep the drivers of this machine.
    """
    driver = library()
    if driver is None or os.environ.get("OCL_ICD_VENDORS"):
        return
    folder = Path(tempfile.gettempdir()) / f"zinc-rt-opencl-{os.getuid()}{'-beside' if beside else ''}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for other in _VENDORS.glob("*.icd") if beside else ():
        with suppress(FileExistsError):
            (folder / other.name).symlink_to(other)
    half = folder / f"{os.getpid()}.half"
    half.write_text(f"{driver}\n", encoding="utf-8")
    half.replace(folder / "intel.icd")
    os.environ["OCL_ICD_VENDORS"] = str(folder)
    os.environ.setdefault("CL_CONFIG_CPU_O0_VECTORIZATION", "True")  # sub-groups without optimisation, see `QUICKLY`
