"""On the system that runs these tests: with or without a GPU, something true is said and nothing is left open."""

from __future__ import annotations

import os
import sys

import pytest

from zinc_rt.amdgpu.errors import InterfaceError
from zinc_rt.amdgpu.kfd.interface import KfdInterface
from zinc_rt.seed.kfd import (
    BringUpStatus,
    ComputeQueueSmokeStatus,
    bring_up_default,
    create_compute_queue_smoke_default,
    find_topology_node,
    reachable,
)


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd")) if sys.platform.startswith("linux") else set()


def test_what_is_not_there_is_said() -> None:
    before = descriptors()
    node = find_topology_node(128)
    result, smoke = bring_up_default(), create_compute_queue_smoke_default()
    if not sys.platform.startswith("linux"):
        assert (result.status.value, smoke.status.value) == ("unsupported_os", "unsupported_os")
    elif node is None:
        assert result.status is BringUpStatus.topology_node_missing
        assert smoke.status is ComputeQueueSmokeStatus.topology_node_missing
        assert not reachable()
        with pytest.raises(InterfaceError, match=r"topology|knows none|supported"):
            KfdInterface("/dev/dri/renderD128")
        assert descriptors() == before
    else:
        assert result.gpu_id == smoke.gpu_id == node.gpu_id
