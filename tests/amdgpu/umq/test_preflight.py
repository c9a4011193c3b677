"""What the probes of user queues see from outside, status by status."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import zinc_rt
from zinc_rt.seed import umq
from zinc_rt.seed.umq import KernelVersion, ProbeResult, ProbeStatus
from zinc_rt.utils.linux import Linux

EXPORTS = [
    "MIN_LINUX", "DEFAULT_RENDER_NODE", "USER_QUEUE_PARAM_PATH", "ProbeStatus", "KernelVersion", "ProbeResult",
    "SmokeStatus", "SmokeResult", "probe_default", "probe_path", "admission_probe_default", "admission_probe_path",
    "create_free_smoke_default", "create_free_smoke_path", "kernel_supports_umq", "parse_kernel_release",
    "user_queue_mode_enables_umq",
]  # fmt: skip


@dataclass
class Outside(Linux):
    """A system as the preflight sees it. files: what can be read; nodes: what exists."""

    release: str = "6.17.0-24-generic"
    files: dict[str, str] = field(default_factory=lambda: {umq.USER_QUEUE_PARAM_PATH: "-1\n"})
    nodes: tuple[str, ...] = ("/dev/dri/renderD128",)
    asked: list[str] = field(default_factory=list)

    @property
    def is_linux(self) -> bool:
        return True

    def kernel_release(self) -> str:
        return self.release

    def read_text(self, path: str) -> str:
        self.asked.append(path)
        if path not in self.files:
            raise OSError(errno.ENOENT, "no such file", path)
        return self.files[path]

    def stat(self, path: str) -> os.stat_result:
        if "\0" in path:
            raise ValueError("embedded null byte")
        if path not in self.nodes:
            raise OSError(errno.ENOENT, "no such file", path)
        return os.stat("/dev/null")

    def open(self, path: str, flags: int = 0) -> int:
        raise AssertionError("the preflight opens nothing")


class OtherSystem(Linux):
    """No Linux: whatever is asked of it but that is a bug."""

    @property
    def is_linux(self) -> bool:
        return False

    def kernel_release(self) -> str:
        raise AssertionError

    def stat(self, path: str) -> os.stat_result:
        raise AssertionError

    def open(self, path: str, flags: int = 0) -> int:
        raise AssertionError


def test_the_page() -> None:
    assert len(EXPORTS) == 17
    assert set(EXPORTS) <= set(umq.__all__)
    assert all(hasattr(umq, name) for name in EXPORTS)
    assert zinc_rt.umq is umq
    assert KernelVersion(6, 16) == umq.MIN_LINUX
    assert umq.DEFAULT_RENDER_NODE == "/dev/dri/renderD128"
    assert umq.USER_QUEUE_PARAM_PATH == "/sys/module/amdgpu/parameters/user_queue"


def test_words_of_the_statuses() -> None:
    assert {s.value for s in ProbeStatus} == {
        "preflight_ok",
        "unsupported_os",
        "kernel_too_old",
        "render_node_missing",
        "user_queue_param_missing",
        "user_queue_disabled",
    }
    assert {s.value for s in umq.SmokeStatus} == {
        "passed", "unsupported_os", "preflight_failed", "compute_userq_unavailable", "render_node_open_failed",
        "gem_create_failed", "gem_mmap_failed", "gem_va_failed", "userq_create_failed", "userq_free_failed",
    }  # fmt: skip


# One test a status.


def test_preflight_ok() -> None:
    result = umq.probe_default(linux=Outside())
    assert result == ProbeResult(ProbeStatus.preflight_ok, KernelVersion(6, 17), "/dev/dri/renderD128", -1)
    assert result.preflight_ok()


def test_unsupported_os() -> None:
    result = umq.probe_path("/dev/dri/renderD129", linux=OtherSystem())
    assert result == ProbeResult(ProbeStatus.unsupported_os, None, "/dev/dri/renderD129", None)
    assert not result.preflight_ok()


@pytest.mark.parametrize("release", ["6.15.12", "6.12.107-amd64", "5.10", "what", ""])
def test_kernel_too_old(release: str) -> None:
    system = Outside(release)
    result = umq.probe_default(linux=system)
    assert result.status is ProbeStatus.kernel_too_old
    assert result.kernel == umq.parse_kernel_release(release)
    assert not system.asked


@pytest.mark.parametrize("path", ["/dev/dri/renderD130", "/dev/dri/\0"])
def test_render_node_missing(path: str) -> None:
    result = umq.probe_path(path, linux=Outside())
    assert result == ProbeResult(ProbeStatus.render_node_missing, KernelVersion(6, 17), path, None)


@pytest.mark.parametrize("files", [{}, {umq.USER_QUEUE_PARAM_PATH: "Y\n"}, {umq.USER_QUEUE_PARAM_PATH: ""}])
def test_user_queue_param_missing(files: dict[str, str]) -> None:
    result = umq.probe_default(linux=Outside(files=files))
    assert result.status is ProbeStatus.user_queue_param_missing
    assert result.user_queue_mode is None


@pytest.mark.parametrize("mode", [0, 3])
def test_user_queue_disabled(mode: int) -> None:
    result = umq.probe_default(linux=Outside(files={umq.USER_QUEUE_PARAM_PATH: f"{mode}\n"}))
    assert (result.status, result.user_queue_mode) == (ProbeStatus.user_queue_disabled, mode)


# The small functions.


@pytest.mark.parametrize(
    ("release", "version"),
    [
        ("6.16.0-24-generic", (6, 16, 0)),
        ("6.16-rc4", (6, 16, 0)),
        ("6.15.12", (6, 15, 12)),
        ("7.3.4-amd64", (7, 3, 4)),
        ("6.12.107+deb13-amd64\n", (6, 12, 107)),
        ("5.15.167.4-microsoft-standard-WSL2", (5, 15, 167)),
        ("10.0", (10, 0, 0)),
    ],
)
def test_parse_kernel_release(release: str, version: tuple[int, int, int]) -> None:
    assert umq.parse_kernel_release(release) == KernelVersion(*version)


@pytest.mark.parametrize("release", ["", "6", "6.", ".16", "v6.16", "six", "-6.16", "६.१६"])
def test_releases_that_are_none(release: str) -> None:
    assert umq.parse_kernel_release(release) is None


@pytest.mark.parametrize(
    ("version", "new_enough"),
    [((6, 16, 0), True), ((6, 16, 1), True), ((6, 15, 99), False), ((7, 0, 0), True), ((5, 99, 0), False)],
)
def test_kernel_supports_umq(version: tuple[int, int, int], new_enough: bool) -> None:
    assert umq.kernel_supports_umq(KernelVersion(*version)) is new_enough


@pytest.mark.parametrize(
    ("mode", "enabled"), [(-1, True), (0, False), (1, True), (2, True), (3, False), (4, False), (-2, False)]
)
def test_user_queue_mode_enables_umq(mode: int, enabled: bool) -> None:
    assert umq.user_queue_mode_enables_umq(mode) is enabled


# The real kernel.


def test_on_this_machine() -> None:
    result = umq.probe_default()
    assert result.kernel == umq.parse_kernel_release(os.uname().release)
    if result.status is ProbeStatus.preflight_ok:
        assert Path(umq.DEFAULT_RENDER_NODE).exists()
    else:
        smoke = umq.create_free_smoke_default()
        assert (smoke.status, smoke.preflight_status) == (umq.SmokeStatus.preflight_failed, result.status)
        assert umq.admission_probe_default() == smoke


def test_a_node_that_is_none() -> None:
    result = umq.create_free_smoke_path("/dev/dri/renderD1000")
    assert result.status is umq.SmokeStatus.preflight_failed
    assert not result.ok()
