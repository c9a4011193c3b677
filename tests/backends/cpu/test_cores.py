"""How many threads are worth running, from made-up system folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zinc_rt.backends.cpu.cores import default_threads

# Which processors share a core, as the kernel lists them.
PLAIN = {0: "0", 1: "1", 2: "2", 3: "3"}
PAIRS = {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}
ACROSS = {i: f"{i % 4},{i % 4 + 4}" for i in range(8)}  # siblings are numbered behind all first ones
FOURS = {i: f"{i // 4 * 4}-{i // 4 * 4 + 3}" for i in range(8)}
HYBRID = {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3", 4: "4", 5: "5"}


def machine(tmp_path: Path, shared: dict[int, str], name: str = "core_cpus_list") -> Path:
    for cpu, text in shared.items():
        folder = tmp_path / "cpu" / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / name).write_text(f"{text}\n")
    return tmp_path / "cpu"


def groups(tmp_path: Path, files: dict[str, str], own: str | None = None) -> dict[str, Path]:
    """A control-group folder with these files, and what the process's own groups are."""
    root = tmp_path / "cgroup"
    root.mkdir()
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    if own is not None:
        (tmp_path / "self").write_text(own)
    return {"cgroup": root, "groups": tmp_path / "self"}


@pytest.mark.parametrize("name", ["core_cpus_list", "thread_siblings_list"])
@pytest.mark.parametrize(
    ("shared", "allowed", "want"),
    [
        (PLAIN, {0, 1, 2, 3}, 4),
        (PLAIN, {2}, 1),
        (PAIRS, {0, 1, 2, 3}, 2),
        (PAIRS, {0, 1}, 1),
        (PAIRS, {1, 2}, 2),
        (ACROSS, set(range(8)), 4),
        (ACROSS, {0, 4}, 1),
        (ACROSS, {0, 1, 2, 3}, 4),
        (FOURS, set(range(8)), 2),
        (HYBRID, set(range(6)), 4),
    ],
)
def test_siblings_count_once(shared: dict[int, str], allowed: set[int], want: int, name: str, tmp_path: Path) -> None:
    assert default_threads(machine(tmp_path, shared, name), allowed=allowed, **groups(tmp_path, {})) == want


def test_without_a_topology_every_processor_counts(tmp_path: Path) -> None:
    assert default_threads(tmp_path / "nowhere", allowed={0, 1, 5}, **groups(tmp_path, {})) == 3


V1 = "3:cpu,cpuacct:{0}\n2:memory:/else\n0::/\n"


@pytest.mark.parametrize(
    ("files", "own", "want"),
    [
        ({"cpu.max": "max 100000\n"}, "0::/\n", 4),
        ({"cpu.max": "200000 100000\n"}, "0::/\n", 2),
        ({"cpu.max": "150000 100000\n"}, "0::/\n", 2),  # rounded up
        ({"cpu.max": "1000 100000\n"}, "0::/\n", 1),
        ({"cpu.max": "900000 100000\n"}, "0::/\n", 4),
        ({"cpu.max": "200000 100000\n"}, None, 2),
        ({"a/b/cpu.max": "200000 100000\n"}, "0::/a/b\n", 2),
        ({"a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 100000\n"}, "0::/a/b\n", 3),
        ({"a/cpu.max": "100000 100000\n", "a/b/cpu.max": "300000 100000\n"}, "0::/a/b\n", 1),
        ({"other/cpu.max": "100000 100000\n"}, "0::/a/b\n", 4),
        ({"cpu.max": "200000 100000\n"}, "0::/../elsewhere\n", 2),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, V1.format("/"), 4),
        ({"cpu/cpu.cfs_quota_us": "250000\n", "cpu/cpu.cfs_period_us": "100000\n"}, V1.format("/"), 3),
        ({"cpu/job/cpu.cfs_quota_us": "100000\n", "cpu/job/cpu.cfs_period_us": "50000\n"}, V1.format("/job"), 2),
        ({"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"}, V1.format("/docker/abc"), 1),
        ({"cpu/cpu.cfs_quota_us": "100000\n"}, V1.format("/"), 4),
        ({"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "0\n"}, V1.format("/"), 4),
        ({"cpu.max": "lots 100000\n"}, "0::/\n", 4),
        ({"cpu.max": "\n"}, "nonsense\n\n", 4),
        ({}, None, 4),
    ],
)
def test_quotas(files: dict[str, str], own: str | None, want: int, tmp_path: Path) -> None:
    assert default_threads(machine(tmp_path, PLAIN), allowed=set(PLAIN), **groups(tmp_path, files, own)) == want


def test_this_machine() -> None:
    assert 1 <= default_threads() <= len(os.sched_getaffinity(0))
