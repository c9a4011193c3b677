"""The interface to the operating system, on the system that the tests run on."""

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import os
import platform
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import zinc_rt.utils.linux as module
from zinc_rt.utils.linux import (
    MAP_ANONYMOUS,
    MAP_FIXED,
    MAP_NORESERVE,
    MAP_PRIVATE,
    MAP_SHARED,
    PAGE,
    PROT_NONE,
    PROT_READ,
    PROT_WRITE,
    Linux,
    host,
)

READ_WRITE = PROT_READ | PROT_WRITE
BEYOND = 3 << 62 | 0x4A7B << 46  # where amdkfd keeps doorbells: negative for a signed offset
LINUX = Linux()


class Count(ctypes.Structure):
    """What FIONREAD writes."""

    _fields_ = (("n", ctypes.c_int32),)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def code_of(call: Callable[[], object]) -> int | None:
    with pytest.raises(OSError) as caught:
        call()
    return caught.value.errno


# The system itself.


def test_what_it_says_of_the_system() -> None:
    assert LINUX.is_linux == (sys.platform == "linux")
    assert LINUX.kernel_release() == platform.release()
    assert LINUX.pid() == os.getpid()
    assert LINUX.groups() == sorted({os.getegid(), *os.getgroups()})
    assert host() is host()


def test_another_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not Linux().is_linux


def test_the_clock_is_the_one_of_the_driver() -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    now = LINUX.monotonic_ns()
    assert before <= now <= time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    LINUX.sleep(0.001)
    assert LINUX.monotonic_ns() - now >= 1_000_000


# Files.


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "gpu_id"
    path.write_text("19067\n")
    fd = LINUX.open(str(path), os.O_RDWR)
    assert os.read(fd, 99) == b"19067\n"
    LINUX.close(fd)
    assert code_of(lambda: LINUX.close(fd)) == errno.EBADF
    assert LINUX.read_text(str(path)) == "19067\n"
    (tmp_path / "b").touch()
    assert LINUX.list_dir(str(tmp_path)) == ["b", "gpu_id"]
    assert LINUX.stat(str(path)).st_size == 6


def test_descriptors_are_not_inherited(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    fd = LINUX.open(str(tmp_path / "a"))
    assert not os.get_inheritable(fd)
    LINUX.close(fd)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "name").write_bytes(b"ip \xff discovery\n")
    assert LINUX.read_text(str(tmp_path / "name")).endswith("discovery\n")


def test_errors_of_files(tmp_path: Path) -> None:
    none, file = str(tmp_path / "none"), tmp_path / "file"
    file.touch()
    assert code_of(lambda: LINUX.open(none)) == errno.ENOENT
    assert code_of(lambda: LINUX.read_text(none)) == errno.ENOENT
    assert code_of(lambda: LINUX.list_dir(none)) == errno.ENOENT
    assert code_of(lambda: LINUX.stat(none)) == errno.ENOENT
    assert code_of(lambda: LINUX.read_text(str(tmp_path))) == errno.EISDIR
    assert code_of(lambda: LINUX.list_dir(str(file))) == errno.ENOTDIR
    assert code_of(lambda: LINUX.read_text(f"{file}/below")) == errno.ENOTDIR


# ioctl.


def test_ioctl(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"12345")
    count = Count()
    assert LINUX.ioctl(pipe[0], termios.FIONREAD, count) == 0
    assert count.n == 5
    expected = array.array("i", [0])
    fcntl.ioctl(pipe[0], termios.FIONREAD, expected, True)
    assert expected[0] == 5


def test_an_ioctl_that_the_file_does_not_know(pipe: tuple[int, int]) -> None:
    assert code_of(lambda: LINUX.ioctl(pipe[0], 0x80084B01, Count())) == errno.ENOTTY
    assert code_of(lambda: LINUX.ioctl(-1, termios.FIONREAD, Count())) == errno.EBADF


class FakeLibc:
    """Answers ioctls with a list of errnos (0: it worked), the last one again and again."""

    def __init__(self, *answers: int) -> None:
        self.answers, self.calls = list(answers), 0
        self.before: Callable[[], object] = lambda: None

    def ioctl(self, fd: int, request: object, argument: object) -> int:
        self.before()
        answer = self.answers[min(self.calls, len(self.answers) - 1)]
        self.calls += 1
        ctypes.set_errno(answer)
        return -1 if answer else 7


def answers(monkeypatch: pytest.MonkeyPatch, *codes: int) -> FakeLibc:
    libc = FakeLibc(*codes)
    monkeypatch.setattr(module, "_libc", lambda: libc)
    return libc


def test_an_interrupted_ioctl_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    libc = answers(monkeypatch, *[errno.EINTR] * 50, 0)
    assert LINUX.ioctl(3, 0, Count()) == 7
    assert libc.calls == 51


def test_a_signals_handler_gets_through(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stop(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stop

    libc = answers(monkeypatch, errno.EINTR)
    libc.before = lambda: signal.raise_signal(signal.SIGUSR1) if libc.calls == 3 else None
    old = signal.signal(signal.SIGUSR1, stop)
    try:
        with pytest.raises(Stop):
            LINUX.ioctl(3, 0, Count())
    finally:
        signal.signal(signal.SIGUSR1, old)
    assert libc.calls <= 4


def test_an_ioctl_is_tried_again_while_it_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    libc = answers(monkeypatch, errno.EAGAIN, errno.EAGAIN, errno.EINTR, errno.EAGAIN, 0)
    assert LINUX.ioctl(3, 0, Count()) == 7
    assert libc.calls == 5


def test_trying_again_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    libc = answers(monkeypatch, errno.EAGAIN)
    monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.02)
    assert code_of(lambda: LINUX.ioctl(3, 0, Count())) == errno.EAGAIN
    assert libc.calls > 2


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENODEV, errno.ETIME, errno.ECANCELED])
def test_other_errors_come_at_once(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    libc = answers(monkeypatch, code)
    assert code_of(lambda: LINUX.ioctl(3, 0, Count())) == code
    assert libc.calls == 1


# mmap.


def test_anonymous_memory() -> None:
    at = LINUX.mmap(0, 3 * PAGE, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS)
    assert at % PAGE == 0
    assert LINUX.load64(at + 2 * PAGE) == 0
    LINUX.store64(at, 0x1122334455667788)
    LINUX.store32(at + 8, 0xFFFFFFFF)
    assert (LINUX.load32(at), LINUX.load32(at + 4), LINUX.load32(at + 8)) == (0x55667788, 0x11223344, 0xFFFFFFFF)
    LINUX.munmap(at, 3 * PAGE)


def test_a_file_over_a_reservation(tmp_path: Path) -> None:
    """As a GPU's address range is taken: reserved without memory, then covered by the device's pages."""
    (tmp_path / "bo").write_bytes(b"\0" * PAGE + b"\x2a" + b"\0" * (PAGE - 1))
    fd = LINUX.open(str(tmp_path / "bo"))
    at = LINUX.mmap(0, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)
    assert LINUX.mmap(at + PAGE, PAGE, READ_WRITE, MAP_SHARED | MAP_FIXED, fd, PAGE) == at + PAGE
    LINUX.close(fd)
    assert LINUX.load32(at + PAGE) == 42
    LINUX.store32(at + PAGE, 43)
    assert (tmp_path / "bo").read_bytes()[PAGE] == 43
    LINUX.munmap(at, 4 * PAGE)


def test_offsets_beyond_63_bits_reach_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "bo").write_bytes(b"\0" * PAGE)
    fd = LINUX.open(str(tmp_path / "bo"))
    # A file's pages have no such number; a device that takes any offset maps it.
    assert code_of(lambda: LINUX.mmap(0, PAGE, PROT_READ, MAP_SHARED, fd, BEYOND)) == errno.EOVERFLOW
    assert code_of(lambda: LINUX.mmap(0, PAGE, PROT_READ, MAP_SHARED, fd, BEYOND + 8)) == errno.EINVAL
    LINUX.close(fd)
    zero = LINUX.open("/dev/zero")
    at = LINUX.mmap(0, 2 * PAGE, PROT_READ, MAP_PRIVATE, zero, BEYOND)
    LINUX.close(zero)
    assert LINUX.load64(at) == 0
    LINUX.munmap(at, 2 * PAGE)


def test_errors_of_maps() -> None:
    assert code_of(lambda: LINUX.mmap(0, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS)) == errno.EINVAL
    assert code_of(lambda: LINUX.mmap(0, 1 << 62, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS)) == errno.ENOMEM
    assert code_of(lambda: LINUX.mmap(0, PAGE, PROT_READ, MAP_SHARED, -1)) == errno.EBADF
    assert code_of(lambda: LINUX.munmap(1, PAGE)) == errno.EINVAL


# The store fence.


@pytest.fixture
def fresh_fence() -> Iterator[None]:
    module._store_fence.cache_clear()
    yield
    module._store_fence.cache_clear()


def test_store_fence(fresh_fence: None) -> None:
    for _ in range(3):
        LINUX.store_fence()
    assert module._store_fence() is module._store_fence()
    if platform.machine() in module._FENCES:
        assert isinstance(module._store_fence(), ctypes._CFuncPtr)


def test_store_fence_of_an_unknown_processor(fresh_fence: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    LINUX.store_fence()
    assert not isinstance(module._store_fence(), ctypes._CFuncPtr)


def test_store_fence_where_code_pages_are_refused(fresh_fence: None, monkeypatch: pytest.MonkeyPatch) -> None:
    real, unmapped = module._libc(), []

    class Strict:
        """A system whose policy refuses pages that become executable."""

        mmap = real.mmap

        def mprotect(self, *_: object) -> int:
            ctypes.set_errno(errno.EACCES)
            return -1

        def munmap(self, address: int, length: int) -> int:
            unmapped.append((address, length))
            return int(real.munmap(address, length))

    monkeypatch.setattr(module, "_libc", Strict)
    LINUX.store_fence()
    assert len(unmapped) == 1  # the page went back
    assert not isinstance(module._store_fence(), ctypes._CFuncPtr)


def test_fences_from_several_threads(fresh_fence: None) -> None:
    errors: list[BaseException] = []

    def fence() -> None:
        try:
            for _ in range(200):
                LINUX.store_fence()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=fence) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_the_code_of_the_fences() -> None:
    """Against an assembler's words: sfence and ret of x86-64; dsb st and ret of AArch64."""
    assert module._FENCES["x86_64"] == b"\x0f\xae\xf8\xc3"
    arm = module._FENCES["aarch64"]
    assert [int.from_bytes(arm[i : i + 4], "little") for i in (0, 4)] == [0xD5033E9F, 0xD65F03C0]
