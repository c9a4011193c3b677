"""The memory plan and where its limit comes from, on made-up /proc and control-group folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from zinc_rt.errors import UsageError
from zinc_rt.mem.errors import MemoryPlanError
from zinc_rt.mem.plan import MIB, MemoryPlan, available_memory, format_bytes, parse_bytes

GIB = 1024 * MIB
HEADROOM = 64 * MIB


def plan(available: int | None, **parts: int) -> MemoryPlan:
    given = {"weights": 100 * MIB, "unpacked": 0, "kv_cache": 50 * MIB, "scratch": 5 * MIB, "constants": 1 * MIB}
    return MemoryPlan(**{**given, **parts}, available=available)


def test_sums() -> None:
    p = plan(None, unpacked=7 * MIB)
    assert p.total == (100 + 7 + 50 + 5 + 1) * MIB
    assert p.as_dict() == {
        "weights": 100 * MIB, "unpacked": 7 * MIB, "kv_cache": 50 * MIB, "scratch": 5 * MIB, "constants": MIB,
        "available": None, "recurrent": 0, "snapshots": 0, "kept_free": 0, "main_model": 0, "streamed": 0,
            "total": p.total,
    }  # fmt: skip


def test_a_plan_that_just_fits() -> None:
    plan(156 * MIB + HEADROOM).check()
    plan(None).check()  # nobody knows: try


def test_the_plan_in_a_line() -> None:
    assert plan(None).summary == (
        "memory 156.0 MiB (weights 100.0 MiB, KV cache 50.0 MiB, scratch 5.0 MiB, tables 1.0 MiB)"
    )
    assert plan(GIB).summary.endswith("), 1.00 GiB available")


def test_refusal_with_the_numbers() -> None:
    with pytest.raises(MemoryPlanError) as caught:
        plan(156 * MIB + HEADROOM - 1, unpacked=0).check()
    message = str(caught.value)
    for part in ("weights 100.0 MiB", "KV cache 50.0 MiB", "scratch 5.0 MiB", "tables 1.0 MiB", "need 220.0 MiB"):
        assert part in message
    assert "220.0 MiB are available" in message
    assert "context" in message
    assert "unpacked" not in message  # of which there are none
    assert "\n" not in message


def test_what_stays_free_of_a_gpu_is_told() -> None:
    kept = plan(GIB, kept_free=3 * GIB)
    assert kept.summary.endswith("), 1.00 GiB available (3.00 GiB more, a tenth, stay free)")
    with pytest.raises(MemoryPlanError, match=r"1\.00 GiB are available \(3\.00 GiB more, a tenth, stay free\); use"):
        plan(GIB, kept_free=3 * GIB, weights=2 * GIB).check()


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (MIB, "1.0 MiB"),
        (int(3.25 * MIB), "3.2 MiB"), (GIB, "1.00 GiB"), (int(1.5 * GIB), "1.50 GiB"), (300 * GIB, "300.00 GiB"),
    ],
)  # fmt: skip
def test_format_bytes(n: int, text: str) -> None:
    assert format_bytes(n) == text


def folders(tmp_path: Path, meminfo: str | None, **cgroup: str) -> tuple[Path, Path]:
    """A /proc and a /sys/fs/cgroup; files of the latter by name, `__` for a dot, `_in_` names in `memory/`."""
    proc, group = tmp_path / "proc", tmp_path / "cgroup"
    proc.mkdir()
    (group / "memory").mkdir(parents=True)
    if meminfo is not None:
        (proc / "meminfo").write_text(meminfo)
    for name, text in cgroup.items():
        (group / name.replace("v1_", "memory/").replace("__", ".")).write_text(text)
    return proc, group


MEMINFO = "MemTotal:       16000000 kB\nMemFree:         100000 kB\nMemAvailable:    8000000 kB\n"
AVAILABLE = 8_000_000 * 1024


@pytest.mark.parametrize(
    ("meminfo", "cgroup", "want"),
    [
        (MEMINFO, {}, AVAILABLE),
        (MEMINFO, {"memory__max": "max\n", "memory__current": "5\n", "memory__stat": ""}, AVAILABLE),
        (
            MEMINFO,
            {"memory__max": f"{2 * GIB}\n", "memory__current": f"{GIB}\n", "memory__stat": f"anon 5\nfile {GIB // 2}"},
            GIB + GIB // 2,  # what is used but only page cache can be dropped
        ),
        (
            MEMINFO,
            {"memory__max": f"{2 * GIB}", "memory__current": f"{3 * GIB}", "memory__stat": "file 0\n"},
            0,
        ),
        (MEMINFO, {"memory__max": f"{100 * GIB}", "memory__current": "0", "memory__stat": "file 0\n"}, AVAILABLE),
        (
            MEMINFO,
            {
                "v1_memory__limit_in_bytes": f"{2 * GIB}",
                "v1_memory__usage_in_bytes": f"{GIB}",
                "v1_memory__stat": "cache 4096\nrss 7\n",
            },
            GIB + 4096,
        ),
        (None, {"memory__max": f"{2 * GIB}", "memory__current": "0", "memory__stat": "file 0\n"}, 2 * GIB),
        (None, {}, None),
        ("nonsense\nMemAvailable:\n", {}, None),
        ("MemAvailable: many kB\n", {}, None),
        ("MemTotal: 5 kB\n", {}, None),
        (MEMINFO, {"memory__max": "lots", "memory__current": "0", "memory__stat": ""}, AVAILABLE),
        (MEMINFO, {"memory__max": f"{GIB}"}, AVAILABLE),
    ],
    ids=[
        "no group", "no limit", "limit", "over the limit", "limit above what is there", "version 1", "no meminfo",
        "nothing", "broken meminfo", "no number", "old kernel", "broken limit", "no usage",
    ],
)  # fmt: skip
def test_available_memory(tmp_path: Path, meminfo: str | None, cgroup: dict[str, str], want: int | None) -> None:
    proc, group = folders(tmp_path, meminfo, **cgroup)
    assert available_memory(proc, group) == want


LIMITED = {"memory.max": f"{GIB}", "memory.current": "0", "memory.stat": "file 0\n"}
LIMITED_V1 = {"memory.limit_in_bytes": f"{GIB}", "memory.usage_in_bytes": "0", "memory.stat": "cache 0\n"}


@pytest.mark.parametrize(
    ("own", "limited", "files", "want"),
    [
        ("0::/jobs/one\n", "jobs/one", LIMITED, GIB),
        ("0::/jobs/one\n", "jobs", LIMITED, GIB),
        ("0::/jobs/one\n", "jobs/two", LIMITED, AVAILABLE),
        ("0::/jobs/one\n", "jobs", {**LIMITED, "memory.max": "max", "memory.high": f"{GIB // 2}"}, GIB // 2),
        ("4:memory:/jobs/one\n3:cpu,cpuacct:/\n", "memory/jobs/one", LIMITED_V1, GIB),
        ("4:cpu:/jobs/one\n", "memory/jobs/one", LIMITED_V1, AVAILABLE),
        ("0::/../jobs\n", "jobs", LIMITED, AVAILABLE),
    ],
    ids=["own", "above", "another's", "high", "version 1", "another controller", "outside"],
)
def test_limits_of_the_processs_own_groups(
    tmp_path: Path, own: str, limited: str, files: dict[str, str], want: int
) -> None:
    proc, group = folders(tmp_path, MEMINFO)
    (proc / "self").mkdir()
    (proc / "self" / "cgroup").write_text(own)
    (group / limited).mkdir(parents=True)
    for name, text in files.items():
        (group / limited / name).write_text(text)
    assert available_memory(proc, group) == want


def test_no_folders_at_all(tmp_path: Path) -> None:
    assert available_memory(tmp_path / "no", tmp_path / "nothing") is None


def test_this_machine() -> None:
    left = available_memory()
    assert left is None or 0 <= left < 1 << 60


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4G", 4 * GIB),
        ("512 MiB", 512 * MIB),
        ("1.5g", 3 * GIB // 2),
        ("4096", 4096),
        (" 2kb ", 2048),
        ("0", 0),
        ("1T", 1 << 40),
        ("7B", 7),
    ],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "G", "-1", "4 giga", "1e9", "4GG", "٤G", "nan", "1" * 40])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="is no size in bytes"):
        parse_bytes(text)


def test_another_model_on_the_device_counts() -> None:
    both = plan(GIB, main_model=800 * MIB)
    assert both.total == 956 * MIB
    assert "the model that it drafts for 800.0 MiB" in both.summary
    both.check()
    with pytest.raises(MemoryPlanError, match=r"drafts for 850\.0 MiB"):
        plan(GIB, main_model=850 * MIB).check()
