"""Numbers of the drivers that their public headers leave out: from `kfd_priv.h`, `amdgpu_vm.h` and `amdgpu_gmc.h`."""

from __future__ import annotations

KFD_DOORBELL_SLICE = 0x2000
"""Bytes of a process's doorbells on one GPU: the only length that an mmap of them may have."""
