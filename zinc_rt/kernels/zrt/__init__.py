"""`.zrt` files: one compiled GPU kernel each, with everything that a launch needs. `docs/kernels.md` has the format."""

from zinc_rt.kernels.zrt.errors import (
    InvalidField,
    NotZrt,
    UnsupportedAbi,
    UnsupportedGpuTarget,
    ZrtDamaged,
    ZrtError,
    ZrtTruncated,
)
from zinc_rt.kernels.zrt.folder import KernelFileError, read_file, read_folder, write_file, write_folder
from zinc_rt.kernels.zrt.form import Header, header_of
from zinc_rt.kernels.zrt.reading import read_zrt
from zinc_rt.kernels.zrt.writing import write_zrt

__all__ = [
    "Header",
    "InvalidField",
    "KernelFileError",
    "NotZrt",
    "UnsupportedAbi",
    "UnsupportedGpuTarget",
    "ZrtDamaged",
    "ZrtError",
    "ZrtTruncated",
    "header_of",
    "read_file",
    "read_folder",
    "read_zrt",
    "write_file",
    "write_folder",
    "write_zrt",
]
