"""Small KFD calls: versions, clocks, apertures, policies, the runtime's handshake."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from amdgpu_emu.abi import kfd as uapi
from amdgpu_emu.apertures import BYTES, PRIVATE_BASE, SHARED_BASE
from amdgpu_emu.errors import CallRefused
from amdgpu_emu.user_memory import copy_to_user

if TYPE_CHECKING:
    from amdgpu_emu.kfd.process import KfdProcess, ProcessDevice

GPUVM_BASE, GPUVM_LIMIT = 0x10000, 0x7FFFFFFFFFFF
MAX_APERTURES = 7
"""Most nodes in the answer of the old GET_PROCESS_APERTURES."""
GPU_CLOCK_NS = 10
"""The GPU's counter runs at 100 MHz."""
TILE_MODES, MACRO_TILE_MODES = 32, 16
_COHERENT, _NONCOHERENT = uapi.KFD_IOC_CACHE_POLICY_COHERENT, uapi.KFD_IOC_CACHE_POLICY_NONCOHERENT
_ENABLE = 1


def get_version(kfd: KfdProcess, args: uapi.GetVersionArgs) -> None:
    """Serve GET_VERSION."""
    args.major_version, args.minor_version = uapi.KFD_IOCTL_MAJOR_VERSION, kfd.machine.profile.kfd_minor


def get_clock_counters(kfd: KfdProcess, args: uapi.GetClockCountersArgs) -> None:
    """Serve GET_CLOCK_COUNTERS: never fails; a GPU that is not there counts 0."""
    now = kfd.machine.clock.now_ns()
    args.gpu_clock_counter = now // GPU_CLOCK_NS if args.gpu_id in kfd.devices else 0
    args.cpu_clock_counter = args.system_clock_counter = now
    args.system_clock_freq = 10**9


# Apertures.


def _apertures(device: ProcessDevice) -> uapi.ProcessDeviceApertures:
    return uapi.ProcessDeviceApertures(
        lds_base=SHARED_BASE,
        lds_limit=SHARED_BASE + BYTES - 1,
        scratch_base=PRIVATE_BASE,
        scratch_limit=PRIVATE_BASE + BYTES - 1,
        gpuvm_base=GPUVM_BASE,
        gpuvm_limit=GPUVM_LIMIT,
        gpu_id=device.id,
    )


def get_process_apertures(kfd: KfdProcess, args: uapi.GetProcessAperturesArgs) -> None:
    """Serve GET_PROCESS_APERTURES: the first seven GPUs."""
    devices = tuple(kfd.devices.values())[:MAX_APERTURES]
    for i, device in enumerate(devices):
        args.process_apertures[i] = _apertures(device)
    args.num_of_nodes = len(devices)


def get_process_apertures_new(kfd: KfdProcess, args: uapi.GetProcessAperturesNewArgs) -> None:
    """Serve GET_PROCESS_APERTURES_NEW: GPUs only; asked for 0, it counts them.

    Asking for more than there are nodes, processors among them, is an error in kernels with a fix of 2026, which
    6.12.107 and 7.x have and 6.17 as first released has not.
    """
    devices = tuple(kfd.devices.values())
    if not args.num_of_nodes:
        args.num_of_nodes = len(devices)
        return
    profile, nodes = kfd.machine.profile, len(devices) + 1
    limited = not (profile.since(6, 13) and not profile.since(7, 0))
    if limited and args.num_of_nodes > nodes:
        raise CallRefused(errno.EINVAL, f"room for {args.num_of_nodes} nodes: there are {nodes}")
    args.num_of_nodes = min(args.num_of_nodes, len(devices))
    data = b"".join(bytes(_apertures(device)) for device in devices[: args.num_of_nodes])
    copy_to_user(args.kfd_process_device_apertures_ptr, data)


# Settings of a process on a GPU.


def set_memory_policy(kfd: KfdProcess, args: uapi.SetMemoryPolicyArgs) -> None:
    """Serve SET_MEMORY_POLICY."""
    for name, policy in (("default", args.default_policy), ("alternate", args.alternate_policy)):
        if policy not in (_COHERENT, _NONCOHERENT):
            raise CallRefused(errno.EINVAL, f"{name}_policy {policy} is neither 0 nor 1")
    device = kfd.device(args.gpu_id)
    device.bind(errno.ESRCH)
    device.policy = args.default_policy, args.alternate_policy


def set_scratch_backing_va(kfd: KfdProcess, args: uapi.SetScratchBackingVaArgs) -> None:
    """Serve SET_SCRATCH_BACKING_VA: the address is stored and not used."""
    device = kfd.device(args.gpu_id)
    device.bind()
    device.scratch_va = args.va_addr


def set_trap_handler(kfd: KfdProcess, args: uapi.SetTrapHandlerArgs) -> None:
    """Serve SET_TRAP_HANDLER: the addresses are stored and not used."""
    device = kfd.device(args.gpu_id)
    device.bind(errno.ESRCH)
    device.trap_handler = args.tba_addr, args.tma_addr


def set_xnack_mode(kfd: KfdProcess, args: uapi.SetXnackModeArgs) -> None:
    """Serve SET_XNACK_MODE: a negative value queries the mode; no emulated card can retry page faults."""
    if args.xnack_enabled < 0:
        args.xnack_enabled = 0
        return
    if len(kfd.queues):
        raise CallRefused(errno.EBUSY, f"{len(kfd.queues)} queues exist: the mode cannot change")
    if args.xnack_enabled:
        raise CallRefused(errno.EPERM, "no GPU here supports XNACK")


def get_tile_config(kfd: KfdProcess, args: uapi.GetTileConfigArgs) -> None:
    """Serve GET_TILE_CONFIG: tables that cards since gfx9 leave at zero."""
    kfd.device(args.gpu_id)
    args.gb_addr_config, args.num_banks, args.num_ranks = 0, 0, 0
    for name, pointer, most in (
        ("num_tile_configs", args.tile_config_ptr, TILE_MODES),
        ("num_macro_tile_configs", args.macro_tile_config_ptr, MACRO_TILE_MODES),
    ):
        n = min(getattr(args, name), most)
        setattr(args, name, 0)
        copy_to_user(pointer, bytes(4 * n))
        setattr(args, name, n)


def runtime_enable(kfd: KfdProcess, args: uapi.RuntimeEnableArgs) -> None:
    """Serve RUNTIME_ENABLE: bit 0 of `mode_mask` enables, once, before any queue; without it the call disables."""
    if args.mode_mask & _ENABLE:
        if kfd.runtime_enabled:
            raise CallRefused(errno.EBUSY, "the runtime is enabled already")
        if len(kfd.queues):
            raise CallRefused(errno.EEXIST, f"{len(kfd.queues)} queues exist: too late to enable the runtime")
    kfd.runtime_enabled = bool(args.mode_mask & _ENABLE)
    kfd.runtime_called = True
