"""/dev/kfd and a render node, opened as far as memory can be allocated: version, address space, aperture."""

from __future__ import annotations

import ctypes
from contextlib import suppress

from zinc_rt.amdgpu.abi.kfd import AcquireVmArgs, GetProcessAperturesNewArgs, GetVersionArgs, ProcessDeviceApertures
from zinc_rt.amdgpu.abi.requests import KFD_ACQUIRE_VM, KFD_GET_PROCESS_APERTURES_NEW, KFD_GET_VERSION
from zinc_rt.amdgpu.errors import StepFailed
from zinc_rt.amdgpu.kfd.calls import call, step
from zinc_rt.amdgpu.kfd.constants import KFD_DEVICE_NODE, MIN_KFD_MAJOR
from zinc_rt.amdgpu.kfd.process import kept_state
from zinc_rt.amdgpu.kfd.topology import TopologyNode
from zinc_rt.utils.linux import Linux

_MAX_APERTURES = 256


class KfdSession:
    """One GPU for this process. `open` goes step by step; what it has found out so far is in the attributes, also
    when a step fails. version: major and minor of the interface; aperture: first and last address of the GPU's VM.
    """

    def __init__(self, linux: Linux, node: TopologyNode, render_node: str) -> None:
        self.linux, self.node, self.render_node = linux, node, render_node
        self.version = (0, 0)
        self.aperture = (0, 0)
        self.kfd_fd = -1
        self.render_fd = -1

    def open(self) -> None:
        """Raises `StepFailed`; `close` undoes what was reached."""
        with step("kfd_open_failed"):
            self.kfd_fd = self.linux.open(KFD_DEVICE_NODE)
        state = kept_state(self.linux)
        with state.lock:
            self._open_render_node()
            self._check_version()
            self._acquire_vm()
        self._find_aperture()

    def close(self) -> None:
        """Close what is not kept for the process. Calling it again does nothing."""
        kept = kept_state(self.linux).render_files.values()
        for fd in (self.render_fd, self.kfd_fd):
            if fd >= 0 and fd not in kept:
                with suppress(OSError):
                    self.linux.close(fd)
        self.kfd_fd = self.render_fd = -1

    def _open_render_node(self) -> None:
        kept = kept_state(self.linux).render_files.get(self.node.gpu_id)
        if kept is not None:
            self.render_fd = kept
            return
        with step("render_node_open_failed"):
            self.render_fd = self.linux.open(self.render_node)

    def _check_version(self) -> None:
        args = GetVersionArgs()
        with step("get_version_failed"):
            call(self.linux, self.kfd_fd, KFD_GET_VERSION, args)
        self.version = args.major_version, args.minor_version
        if args.major_version < MIN_KFD_MAJOR:
            raise StepFailed("kfd_version_too_old")

    def _acquire_vm(self) -> None:
        with step("acquire_vm_failed"):
            call(self.linux, self.kfd_fd, KFD_ACQUIRE_VM, AcquireVmArgs(self.render_fd, self.node.gpu_id))
        self.linux.keep(fd=self.render_fd)
        kept_state(self.linux).render_files[self.node.gpu_id] = self.render_fd

    def _find_aperture(self) -> None:
        with step("apertures_failed"):
            entries = self._fetch_apertures()
        for entry in entries:
            if entry.gpu_id == self.node.gpu_id and entry.gpuvm_limit > entry.gpuvm_base:
                self.aperture = entry.gpuvm_base, entry.gpuvm_limit
                return
        raise StepFailed("aperture_missing")

    def _fetch_apertures(self) -> list[ProcessDeviceApertures]:
        # Kernels of 2026 refuse room for more entries than the machine has nodes: ask for their number first.
        count = GetProcessAperturesNewArgs()
        call(self.linux, self.kfd_fd, KFD_GET_PROCESS_APERTURES_NEW, count)
        n = min(count.num_of_nodes, _MAX_APERTURES)
        if not n:
            return []
        array = (ProcessDeviceApertures * n)()
        args = GetProcessAperturesNewArgs(ctypes.addressof(array), n)
        call(self.linux, self.kfd_fd, KFD_GET_PROCESS_APERTURES_NEW, args)
        return list(array)[: args.num_of_nodes]
