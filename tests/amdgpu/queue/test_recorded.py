"""A command list stays in GPU memory: what is stored again, and when; when its memory goes back."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from tests.amdgpu.queue.fake import FakeInterface
from tests.amdgpu.queue.stage import INTERFACES, affine, install, pointers, queue_of
from zinc_rt.amdgpu.command_list import CommandList
from zinc_rt.amdgpu.errors import InterfaceError
from zinc_rt.amdgpu.gfx import GFX12
from zinc_rt.amdgpu.interface import DeviceBuffer
from zinc_rt.amdgpu.packets import fence_packets, lower
from zinc_rt.amdgpu.pool import Pool
from zinc_rt.amdgpu.queue import GpuQueue
from zinc_rt.errors import BackendError
from zinc_rt.utils.linux import Linux


class Stores(Linux):
    """The host, and the 32-bit stores that were asked of it."""

    def __init__(self) -> None:
        self.stores: list[tuple[int, int]] = []

    def store32(self, address: int, value: int) -> None:
        self.stores.append((address, value))
        super().store32(address, value)


class Fake(FakeInterface):
    """Notes where packets were submitted. refuse: raised by the next submission."""

    def __init__(self) -> None:
        super().__init__()
        self.linux: Stores = Stores()
        self.places: list[int] = []
        self.refuse: BaseException | None = None

    def submit(self, buffer: DeviceBuffer, offset: int, n_dwords: int) -> int:
        if self.refuse is not None:
            error, self.refuse = self.refuse, None
            raise error
        self.places.append(buffer.va + offset)
        return super().submit(buffer, offset, n_dwords)


def retire(queue: GpuQueue, fake: Fake, sequence: int) -> None:
    """As the GPU does: the signal, then the interface's number."""
    queue._signal[0], fake.done = sequence, sequence
    queue.retired()


def packet_pool(queue: GpuQueue) -> Pool:
    return next(pool for pool in queue._heaps if pool.label == "packets")


def words_of(commands: CommandList, queue: GpuQueue, sequence: int) -> list[int]:
    """What a submission of this number is to run."""
    body = lower(commands, GFX12)
    return body + fence_packets(len(body), GFX12, queue._own.va, sequence)


@pytest.mark.parametrize("n", [1, 2, 3, 60])  # the fence's value at odd and even dwords
def test_a_second_submission_stores_two_dwords(n: int) -> None:
    fake = Fake()
    with GpuQueue(fake) as queue:
        memory = queue.alloc(1024)
        commands = CommandList().write(memory, range(n))
        queue.submit(commands)
        retire(queue, fake, 1)
        queue._submitted = (7 << 32) + 4  # both dwords of the fence matter
        fake.linux.stores.clear()
        queue.submit(commands)
        assert [value for _, value in fake.linux.stores] == [5, 7]
        assert fake.places[0] == fake.places[1]
        assert fake.submissions == [words_of(commands, queue, 1), words_of(commands, queue, (7 << 32) + 5)]


def test_a_pending_list_is_not_touched() -> None:
    fake = Fake()
    with GpuQueue(fake) as queue:
        memory = queue.alloc(64)
        commands = CommandList().write(memory, [1])
        for _ in range(4):
            queue.submit(commands)
        assert len(set(fake.places)) == 4
        one = packet_pool(queue).used // 4
        retire(queue, fake, 1)
        queue.submit(commands)
        assert fake.places[4] == fake.places[0]
        retire(queue, fake, 5)
        assert packet_pool(queue).used == 2 * one, "two copies are kept"
        for sequence in (6, 7, 8):
            queue.submit(commands)
            retire(queue, fake, sequence)
        assert len(set(fake.places[5:])) == 1, "a caller that waits comes back to one copy"
        assert [words[-59:] for words in fake.submissions] == [words_of(commands, queue, i)[-59:] for i in range(1, 9)]
        queue.check_integrity()


def test_a_list_that_nobody_holds_gives_its_memory_back() -> None:
    fake = Fake()
    with GpuQueue(fake) as queue:
        memory = queue.alloc(64)
        commands, other = CommandList().write(memory, [1]), CommandList()
        queue.submit(commands)
        queue.submit(other)
        both = packet_pool(queue).used
        del commands
        gc.collect()
        queue.submit(other)
        assert packet_pool(queue).used > both, "it is pending"
        retire(queue, fake, 3)
        queue.submit(other)
        retire(queue, fake, 4)
        del other
        gc.collect()
        last = CommandList().write(memory, [2])
        queue.submit(last)
        assert packet_pool(queue).used == len(fake.submissions[-1]) * 4
        for i in range(100):
            retire(queue, fake, 5 + i)
            queue.submit(CommandList().write(memory, [i]))
        assert len(packet_pool(queue).buffers) == 1
        assert packet_pool(queue).used <= 3 * len(fake.submissions[-1]) * 4
        queue.check_integrity()


def test_a_list_that_grew_is_lowered_again() -> None:
    fake = Fake()
    with GpuQueue(fake) as queue:
        memory = queue.alloc(64)
        commands = CommandList().write(memory, [1])
        queue.submit(commands)
        commands.barrier().write(memory, [2], offset=4)
        queue.submit(commands)
        assert fake.submissions == [words_of(CommandList().write(memory, [1]), queue, 1), words_of(commands, queue, 2)]
        retire(queue, fake, 2)
        assert packet_pool(queue).used == 4 * len(fake.submissions[1])


def test_freed_memory_is_refused_each_time() -> None:
    fake = Fake()
    with GpuQueue(fake) as queue:
        a, b = queue.alloc(64, label="a"), queue.alloc(64)
        commands = CommandList("step").write(a, [1])
        queue.submit(commands)
        queue.free(b)
        queue.submit(commands)
        queue.free(a)
        for _ in range(2):
            with pytest.raises(BackendError, match="step uses a, 64 bytes that were freed"):
                queue.submit(commands)
        assert len(fake.submissions) == 2


def test_a_refused_submission_gives_its_copy_back() -> None:
    fake = Fake()
    with GpuQueue(fake) as queue:
        commands = CommandList().write(queue.alloc(64), [1])
        for used in (0, 256):
            fake.refuse = InterfaceError("submitting", 16, "the queue is full")
            with pytest.raises(InterfaceError, match="the queue is full"):
                queue.submit(commands)
            assert packet_pool(queue).used == used
            queue.submit(commands)
        assert fake.submissions == [words_of(commands, queue, sequence) for sequence in (1, 2)]


def test_a_submission_that_may_have_begun_keeps_its_copy() -> None:
    """Ctrl-C inside `submit`: nobody knows whether the GPU reads the packets."""
    fake = Fake()
    with GpuQueue(fake) as queue:
        commands = CommandList().write(queue.alloc(64), [1])
        queue.submit(commands)
        retire(queue, fake, 1)
        fake.refuse = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            queue.submit(commands)
        queue.submit(commands)
        assert fake.places[0] != fake.places[1]
        retire(queue, fake, 2)
        del commands
        gc.collect()
        queue.submit(CommandList())
        assert fake.places[2] == fake.places[1]


def test_with_marks_nothing_is_kept() -> None:
    fake = Fake()
    with GpuQueue(fake, marks=True) as queue:
        kernel = queue.load_code("k", bytes(4), rsrc1=0, rsrc2=0, threads=(32, 1, 1), n_user_data=0)
        commands = CommandList().dispatch(kernel, 1, user_data=()).dispatch(kernel, 1, user_data=())
        for sequence in (1, 2):
            queue.submit(commands)
            retire(queue, fake, sequence)
        assert packet_pool(queue).used == 0
        marks = [lower(commands, GFX12, (queue._own.va + 64, n)) for n in (0, 2)]
        assert [words[: len(marks[0])] for words in fake.submissions] == marks


def test_a_list_outlives_its_queue() -> None:
    commands = CommandList()
    for _ in range(2):
        fake = Fake()
        with GpuQueue(fake) as queue:
            queue.submit(commands)
            queue.submit(commands)
    with GpuQueue(Fake()) as one, GpuQueue(Fake()) as two:
        one.submit(commands)
        two.submit(commands)
        assert packet_pool(one).used == packet_pool(two).used > 0


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("waits", [True, False])
def test_on_the_emulated_gpu(interface: str, waits: bool) -> None:
    """The same list again and again, each time after its own results: x becomes 3 x + 1."""
    with queue_of(interface) as (queue, linux):
        linux.machine.gpus[0].fence_delay = 0.002
        kernel = install(queue, linux, "affine", affine)
        a, b = queue.alloc(128), queue.alloc(128)
        x = np.arange(32, dtype=np.uint32)
        queue.write(a, x)
        there = CommandList("there").dispatch(kernel, 1, user_data=(*pointers(a.va, b.va), 0))
        back = CommandList("back").dispatch(kernel, 1, user_data=(*pointers(b.va, a.va), 0))
        for _ in range(10):
            for commands in (there, back):
                fence = queue.submit(commands)
                if waits:
                    queue.wait(fence)
                x = x * np.uint32(3) + np.uint32(1)
        queue.wait(fence)
        assert queue.read(a) == x.tobytes()
        del there, back, commands
        gc.collect()
        queue.wait(queue.submit(CommandList()))
        queue.retired()
