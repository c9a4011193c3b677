"""The words of a failed step, and what helps: one table for the interfaces, the probes and `zinc check`.

`STEPS` has every step by the word that statuses and errors use. `remedy` picks the sentence for a step and the kernel's
answer. `file_advice` is about a device file that does not open.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass

from zinc_rt.utils.linux import Linux

KERNEL_LOG = "see the kernel's log: dmesg | grep -e amdgpu -e kfd"
CONTAINER = "in a container pass --device /dev/kfd --device /dev/dri"
LOAD = "load the module: modprobe amdgpu"
RESIZABLE_BAR = "turn on Resizable BAR and Above 4G Decoding in the firmware's setup"
ENABLE_USER_QUEUES = "boot with amdgpu.user_queue=1"
_FREE = "free GPU memory, or ask for less"
_NEWER_UMQ = "install Linux 6.16 or newer"
_SEE_FILE = "see the line of its device file"


@dataclass(frozen=True)
class Step:
    """text: the step, or the finding, in words; remedy: the usual remedy."""

    text: str
    remedy: str = KERNEL_LOG


STEPS = {
    # Opening.
    "unsupported_os": Step("amdgpu is a driver of Linux, and this is another system", ""),
    "kfd_open_failed": Step("opening /dev/kfd", "see the line of /dev/kfd"),
    "render_node_open_failed": Step("the render node cannot be opened", _SEE_FILE),
    "render_node_missing": Step("the render node does not exist", f"{LOAD}; {CONTAINER}"),
    "topology_unreadable": Step("amdkfd has no topology in sysfs", "load amdgpu with amdkfd (CONFIG_HSA_AMD)"),
    "topology_node_missing": Step(
        "no node of amdkfd is this GPU", f"amdkfd does not drive this GPU, or the container hides it: {CONTAINER}"
    ),
    "get_version_failed": Step("asking amdkfd for its version"),
    "kfd_version_too_old": Step("amdkfd is too old", "use a newer kernel"),
    "acquire_vm_failed": Step("ACQUIRE_VM", "end other users of the GPU in this process, as ROCm"),
    "apertures_failed": Step("asking amdkfd for the GPU's address ranges"),
    "aperture_missing": Step("amdkfd names no address range of this GPU", f"is it in this container? {CONTAINER}"),
    "hw_ip_query_failed": Step("describing the compute engine"),
    "hw_ip_info_failed": Step("the kernel does not answer for its compute engine"),
    "no_rings": Step("the driver offers no compute ring", "is amdgpu.user_queue=2 set? boot with 1 or without it"),
    "unsupported_compute_ip": Step("the compute engine is of another generation", "use another GPU, or the CPU"),
    "ctx_alloc_failed": Step("making a context"),
    "runtime_enable_failed": Step("RUNTIME_ENABLE"),
    "event_page_failed": Step("giving the event page to the GPU"),
    "event_failed": Step("CREATE_EVENT"),
    # Memory.
    "va_reservation_failed": Step("reserving addresses"),
    "va_outside_aperture": Step(
        "reserving addresses that the GPU reaches", "the system gave addresses that the GPU cannot reach"
    ),
    "bo_list_failed": Step("listing buffers"),
    "bo_alloc_failed": Step("allocating memory", _FREE),
    "bo_map_failed": Step("mapping memory"),
    "alloc_failed": Step("allocating memory", _FREE),
    "map_failed": Step("MAP_MEMORY_TO_GPU"),
    "map_incomplete": Step("MAP_MEMORY_TO_GPU"),
    "mmap_failed": Step(
        "mapping the GPU's memory into this process",
        "raise the limit on locked or mapped memory: ulimit -l, ulimit -v",
    ),
    "unmap_failed": Step("UNMAP_MEMORY_FROM_GPU"),
    "free_failed": Step("FREE_MEMORY_OF_GPU"),
    "gem_create_failed": Step("a buffer of the queue cannot be made", _FREE),
    "gem_mmap_failed": Step("a buffer of the queue cannot be mapped", "free memory of the process"),
    "gem_va_failed": Step("a buffer of the queue cannot be put at its GPU address"),
    # Queues and submissions.
    "create_queue_failed": Step("CREATE_QUEUE"),
    "destroy_queue_failed": Step("DESTROY_QUEUE"),
    "doorbell_failed": Step("mapping the doorbells"),
    "cs_submit_failed": Step("submitting"),
    "wait_cs_failed": Step("waiting for a fence"),
    "wait_timeout": Step("waiting for a fence"),
    "wait_failed": Step("WAIT_EVENTS"),
    "userq_create_failed": Step("the kernel refuses the queue"),
    "userq_free_failed": Step("the queue cannot be freed"),
    # Whether there are user queues.
    "kernel_too_old": Step("the kernel is older than Linux 6.16", _NEWER_UMQ),
    "user_queue_param_missing": Step(
        "amdgpu has no readable parameter user_queue: it was built without user queues, or is not loaded",
        "use a kernel whose amdgpu has user queues",
    ),
    "user_queue_disabled": Step("amdgpu.user_queue forbids user queues", ENABLE_USER_QUEUES),
    "compute_userq_unsupported": Step(
        "the kernel has no compute rings beside user queues, which this probe asks for: amdgpu.user_queue=2 does that",
        ENABLE_USER_QUEUES,
    ),
    "compute_userq_slots_missing": Step(
        "the kernel reports no slots for compute user queues: its default on gfx12, or the firmware is too old",
        f"{ENABLE_USER_QUEUES}, with recent firmware; the other interfaces need neither",
    ),
    "fw_metadata_failed": Step(
        "the kernel does not say how large a compute queue's end-of-pipe buffer is", "install Linux 7.2 or newer"
    ),
    "invalid_fw_metadata": Step("the kernel says that the end-of-pipe buffer has no size", "update the kernel"),
}

_BY_ANSWER = {
    (
        "acquire_vm_failed",
        errno.EBUSY,
    ): "another part of this process has bound the GPU through a render file of its own"
    " (ROCm, for one), and amdkfd allows one per process: use a process of its own",
    ("alloc_failed", errno.ENOMEM): "amdkfd pins what it allocates, so all processes together must fit",
    ("create_queue_failed", errno.EINVAL): "Kernels from 6.12 on compare these sizes exactly: report this line",
    ("create_queue_failed", errno.EIO): "the GPU is being reset; try again in a minute",
    **dict.fromkeys(
        [("create_queue_failed", code) for code in (errno.ENOSPC, errno.EBUSY, errno.ENOMEM, errno.EPERM)],
        "this process, or all processes together, have as many queues as the GPU takes: end some",
    ),
    ("kfd_open_failed", errno.EINVAL): f"amdkfd has no GPU that it can use, or a reset holds it; {KERNEL_LOG}",
}
_ANY_STEP = {errno.ENOMEM: f"memory is short: {_FREE}", errno.ENOSPC: f"memory is short: {_FREE}"}


def remedy(word: str, code: int | None) -> str:
    """What helps when a step failed with an errno; empty where nothing does. word: of `STEPS`, or any other step."""
    known = STEPS.get(word, Step(""))
    answer = _BY_ANSWER.get((word, code or 0))
    return answer or (_ANY_STEP.get(code or 0, known.remedy) if known.remedy == KERNEL_LOG else known.remedy)


# Device files.


def file_advice(linux: Linux, path: str, code: int) -> tuple[str, str]:
    """Why a device file did not open, and what helps. code: the errno. Never raises."""
    if code == errno.ENOENT:
        return f"{path} does not exist", f"{CONTAINER}; otherwise {LOAD}"
    if code in {errno.EACCES, errno.EPERM}:
        return _forbidden(linux, path)
    if code in {errno.ENXIO, errno.ENODEV}:
        return f"{path}: no device answers behind it", KERNEL_LOG
    word = "kfd_open_failed" if path == "/dev/kfd" else ""
    return f"{path} cannot be opened: {os.strerror(code)} (errno {code})", remedy(word, code) if word else KERNEL_LOG


def _forbidden(linux: Linux, path: str) -> tuple[str, str]:
    try:
        found = linux.stat(path)
    except OSError:
        return f"{path} is forbidden, and so is a look at its mode", CONTAINER
    groups, gid = linux.groups(), found.st_gid
    group = _group_name(linux, gid)
    mode = stat.S_IMODE(found.st_mode)
    text = (
        f"{path} is forbidden: mode {mode:04o}, owner {found.st_uid}, group {group}; this process is in "
        f"{', '.join(_group_name(linux, g) for g in groups)}"
    )
    if gid in groups and mode & 0o060 == 0o060:
        return f"{text}: the mode allows it, the container's device rules do not", CONTAINER
    if mode & 0o060 != 0o060:
        return text, f"let the group read and write it: chmod g+rw {path}, by a udev rule"
    who = group.partition(" ")[0]
    return text, f"sudo usermod -aG {who} $USER and log in again; in a container --group-add {gid}"


def _group_name(linux: Linux, gid: int) -> str:
    """ "render (992)" where the system says so, else the number."""
    try:
        lines = linux.read_text("/etc/group").splitlines()
    except OSError:
        return str(gid)
    for line in lines:
        fields = line.split(":")
        if len(fields) > 2 and fields[2] == str(gid):
            return f"{fields[0]} ({gid})"
    return str(gid)
