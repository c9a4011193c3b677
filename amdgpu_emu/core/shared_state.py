"""State that the waves of a dispatch share: memory, LDS, barriers, counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from amdgpu_emu.core.counters import Counters
from amdgpu_emu.core.errors import ShaderError
from amdgpu_emu.core.local_memory import Lds
from amdgpu_emu.core.state import Array, Group
from amdgpu_emu.shader import Dispatch

if TYPE_CHECKING:
    from amdgpu_emu.shader_memory import ShaderMemory


class SharedState:
    """Shared state of the workgroups that run together. n_workgroups: how many; waves: of each workgroup."""

    def __init__(
        self, dispatch: Dispatch, memory: ShaderMemory, counters: Counters, n_workgroups: int, waves: int
    ) -> None:
        self.dispatch, self.memory, self.counters = dispatch, memory, counters
        self.waves = memory.order.per = waves
        self.lanes = 32 if dispatch.wave32 else 64
        self.live: Array = np.full(n_workgroups, waves, np.int64)
        self.signalled: Array = np.zeros(n_workgroups, np.int64)
        self.phase: Array = np.zeros(n_workgroups, np.int64)
        self.changes = 0  # counts events that may let a waiting wave go on
        self.lds = Lds(n_workgroups, dispatch.lds_bytes, waves > 1)

    def signal(self, g: Group) -> None:
        """Let the waves of a group arrive at their workgroup's barrier. Raises `ShaderError`."""
        twice = g.signals > g.waits
        if twice.any():
            raise ShaderError("the barrier is signalled twice without a wait between", wave=int(np.argmax(twice)))
        gone = self.live[g.workgroup] < self.waves
        if gone.any():
            raise ShaderError("signals a barrier after a wave of its workgroup has ended", wave=int(np.argmax(gone)))
        g.signals += 1
        g.clock = None
        np.add.at(self.signalled, g.workgroup, 1)
        self._complete()

    def _complete(self) -> None:
        done = (self.signalled >= self.live) & (self.signalled > 0)
        if done.any():
            self.phase[done] += 1
            self.signalled[done] = 0
            self.changes += 1

    def may_pass(self, g: Group) -> Array:
        """Which waves of a group may pass: bool[n], those whose barrier is complete."""
        passed: Array = self.phase[g.workgroup] > g.waits
        return passed

    def end(self, g: Group) -> None:
        """End the waves of a group. Raises `ShaderError` if others still wait at the barrier."""
        np.subtract.at(self.live, g.workgroup, 1)
        late = (self.signalled[g.workgroup] > 0) & (self.live[g.workgroup] > 0)
        if late.any():
            raise ShaderError(
                "the wave ends while others of its workgroup wait at a barrier", wave=int(np.argmax(late))
            )
        self.changes += 1
