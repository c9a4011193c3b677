"""The OpenCL devices of this machine, and what each lacks to run the kernels.

Bits are those of OpenCL's headers (cl.h).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from zinc_rt.lang.machines import WAVE

_FP_DENORM: Final = 1 << 0
_FP_INF_NAN: Final = 1 << 1
_FP_ROUND_TO_NEAREST: Final = 1 << 2
_FLOATS: Final = _FP_DENORM | _FP_INF_NAN | _FP_ROUND_TO_NEAREST
_FINE_GRAIN: Final = 1 << 1
_SPIRV: Final = (1, 4)
_EXTENSIONS: Final = (
    "cl_khr_fp16",
    "cl_khr_subgroup_ballot",
    "cl_khr_subgroup_shuffle",
    "cl_intel_required_subgroup_size",
)
_DOT_PRODUCT: Final = "cl_khr_integer_dot_product"
UNIFIED: Final = "cl_intel_unified_shared_memory"
COMMAND_BUFFER: Final = "cl_khr_command_buffer"
_WORKGROUP: Final = 1024
_LOCAL_BYTES: Final = 48 << 10
INSTALL: Final = "pip install 'zinc-rt[opencl]'"


@dataclass(frozen=True)
class OpenClCard:
    """An OpenCL device. number: what `opencl:1` names; processor: whether it is a processor, taken only when named;
    lacks: what the kernels need and it does not have; device: pyopencl's; target: of `lang`.
    """

    number: int
    name: str
    driver: str
    memory: int
    processor: bool
    lacks: tuple[str, ...]
    device: Any
    target: str

    @property
    def refusal(self) -> str:
        """Why the runtime does not use it; empty where it may."""
        return f"{self.name} lacks {', '.join(self.lacks)}" if self.lacks else ""


def find_cards() -> tuple[list[OpenClCard], str]:
    """All of them, GPUs before processors, in the order of platforms; and why there are none. Never raises."""
    try:
        import pyopencl as cl
    except ImportError as error:
        return [], f"pyopencl cannot be imported ({error}); {INSTALL}"
    try:
        found = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error as error:
        return [], f"no OpenCL platform answers ({error}); install the device's driver, `clinfo` shows what there is"
    found.sort(key=lambda device: bool(device.type & cl.device_type.CPU))
    cards = [_card(cl, number, device) for number, device in enumerate(found)]
    return cards, "" if cards else "no OpenCL device"


def _card(cl: Any, number: int, device: Any) -> OpenClCard:
    processor = bool(device.type & cl.device_type.CPU)
    # A processor's driver makes each lane's dot product of many instructions, and compiles them for minutes.
    dots = _DOT_PRODUCT in device.extensions.split() and not processor
    driver = f"{device.platform.name} {device.driver_version}".strip()
    return OpenClCard(
        number,
        device.name.strip(),
        driver,
        device.global_mem_size,
        processor,
        tuple(_lacking(cl, device)),
        device,
        "spirv" if dots else "spirv-plain",
    )


def _lacking(cl: Any, device: Any) -> list[str]:
    from zinc_rt.opencl.calls import sub_group_sizes

    has = set(device.extensions.split())
    missing = [name for name in _EXTENSIONS if name not in has]
    if not _takes_spirv(_asked(cl, lambda: device.il_version, "")):
        missing.append("SPIR-V 1.4 (OpenCL 3.0 with cl_khr_il_program)")
    if device.address_bits != 64 or not device.endian_little:
        missing.append("little-endian addresses of 64 bits")
    if device.single_fp_config & _FLOATS != _FLOATS:
        missing.append("float32 with subnormals, infinities and rounding to nearest")
    if device.double_fp_config & _FLOATS != _FLOATS:
        missing.append("float64 (cl_khr_fp64)")
    if WAVE not in (sizes := sub_group_sizes(device)):
        missing.append(f"sub-groups of {WAVE} (it has {', '.join(map(str, sizes)) or 'no choice'})")
    if UNIFIED not in has and not _asked(cl, lambda: device.svm_capabilities, 0) & _FINE_GRAIN:
        missing.append(f"memory that both sides address ({UNIFIED} or fine-grained shared virtual memory)")
    if device.max_work_group_size < _WORKGROUP:
        missing.append(f"workgroups of {_WORKGROUP} (it has {device.max_work_group_size})")
    if device.local_mem_size < _LOCAL_BYTES:
        missing.append(f"{_LOCAL_BYTES >> 10} KiB of local memory (it has {device.local_mem_size >> 10})")
    return missing


def _takes_spirv(text: str) -> bool:
    versions = (word.removeprefix("SPIR-V_").split(".") for word in text.split() if word.startswith("SPIR-V_"))
    return any(tuple(map(int, version)) >= _SPIRV for version in versions)


def _asked(cl: Any, query: Any, otherwise: Any) -> Any:
    """What a device answers to a query that older ones do not know."""
    try:
        return query()
    except cl.Error:
        return otherwise
