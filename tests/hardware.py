"""`pytest --gpu`: tests on this machine's GPU: the first of AMD's, of NVIDIA's or of OpenCL's, or one that is named.

A GPU behind its maker's driver runs the tests of `backends/drivers`, an AMD GPU those of the interfaces, the kernels
and the backend. Nothing in these changes: where they make an emulated `Machine` they get `HostMachine`, which hands out
the real system. A test that asks it for something that only the emulator has (another kernel or card, injected faults,
findings, a shader core in Python) is skipped, with what it asked for as the reason. `EMULATED` has the tests that would
run and must not: those that hang the GPU on purpose, and those that name the emulated card's figures.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from amdgpu_emu import machine as emulator
from amdgpu_emu.core.core import ShaderCore
from amdgpu_emu.models import MODELS
from amdgpu_emu.profiles import LINUX_7_3_USERQ
from zinc_rt.backends.devices import BY_DRIVER, Device, parse_device
from zinc_rt.backends.diagnostics.driver_trials import DRIVERS
from zinc_rt.backends.probe import find_gpus, probe_interface
from zinc_rt.utils import linux as system
from zinc_rt.utils.linux import Linux

HERE = Path(__file__).parent
ON_DRIVERS = HERE / "backends/drivers"
"""What is collected with the switch, for a GPU behind its maker's driver."""
FOLDERS = tuple(
    HERE / name for name in ("amdgpu/cs", "amdgpu/kfd", "amdgpu/umq", "amdgpu/queue", "backends/amdgpu", "kernels/gpu")
)
"""What is collected for an AMD GPU."""
_PACKAGES = tuple("tests." + ".".join(folder.relative_to(HERE).parts) for folder in FOLDERS)
_PATIENCE = 60.0  # the emulator is slow; a hang still ends
_EMULATED_NODE = "/dev/dri/renderD128"

_FAULTS = "it makes the GPU or the driver fail"
EMULATED_FIGURES = "it has the emulated card's figures"
EMULATED: Mapping[str, str] = {
    "amdgpu/cs/test_interface.py::test_a_hang_is_a_loss_with_the_reset_told": _FAULTS,
    "amdgpu/cs/test_interface.py::test_a_page_fault_names_the_buffer": _FAULTS,
    "amdgpu/cs/test_interface.py::test_an_innocent_bystander_is_lost_with_vram": _FAULTS,
    "amdgpu/kfd/test_faults.py": _FAULTS,
    "amdgpu/kfd/test_interface.py::test_close_of_a_hang_says_so_once": _FAULTS,
    "amdgpu/kfd/test_interface.py::test_retires": EMULATED_FIGURES,
    "amdgpu/kfd/test_interface.py::test_timeout_says_everything": _FAULTS,
    "amdgpu/kfd/test_interface_errors.py": _FAULTS,
    "amdgpu/kfd/test_real_kernel.py": "it runs a file of its own",
    "amdgpu/queue/test_faults.py": _FAULTS,
    "amdgpu/umq/test_interface.py::test_a_malformed_packet": _FAULTS,
    "amdgpu/umq/test_interface.py::test_a_page_fault_names_address_and_buffer": _FAULTS,
    "amdgpu/umq/test_interface.py::test_closing_does_not_wait_for_ever": _FAULTS,
    "amdgpu/umq/test_interface.py::test_facts": EMULATED_FIGURES,
    "amdgpu/umq/test_interface.py::test_what_a_submission_puts_into_the_ring": "it has the words of gfx12",
    "amdgpu/umq/test_preflight.py": EMULATED_FIGURES,
    "backends/amdgpu/test_emulated.py": "it is about the emulated device",
    "backends/amdgpu/test_faults.py": _FAULTS,
    "backends/amdgpu/test_predictions.py": "predictions are made from what the emulator counts",
}
"""Beginnings of test ids below tests/, and why they need the emulator."""

state: dict[str, Any] = {"device": "", "processor": False, "linux": None, "node": "", "refused": {}, "emulated": None}
"""Of this run. device: behind its maker's driver, as `--device` takes it; processor: whether that is one; linux: the
system, None without an AMD GPU to test; node: of the card; refused: interfaces that cannot be used, and why; emulated:
the machine that stands for the real one, None as a rule.
"""


class HostLinux(Linux):
    """The real system as tests see it: what an emulated process has beside a `Linux` skips the test."""

    def __init__(self, inner: Linux) -> None:
        self._inner = inner

    def __getattribute__(self, name: str) -> Any:
        if name in Linux.__dict__:
            return getattr(object.__getattribute__(self, "_inner"), name)
        return object.__getattribute__(self, name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return needs_emulator(f"a process's {name}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "_inner":
            needs_emulator(f"another {name} of a process")
        object.__setattr__(self, name, value)


class HostMachine:
    """Stands for `amdgpu_emu.machine.Machine`, with its arguments."""

    def __init__(self, profile: Any = None, models: Any = None, **how: Any) -> None:
        if profile not in (None, LINUX_7_3_USERQ):
            needs_emulator(f"the kernel {profile.name}")
        if models is not None:
            needs_emulator(f"the cards {', '.join(model.name for model in models) or 'none'}")
        shader = how.pop("shader", None)
        if shader is not None and (type(shader) is not ShaderCore or shader.measure):
            needs_emulator(f"a {type(shader).__name__}")
        how.pop("time_scale", None)
        if how:
            needs_emulator(", ".join(how))
        self.dmesg: list[str] = []

    def process(self) -> HostLinux:
        """The one process that there is."""
        found: HostLinux = state["linux"]
        return found

    def close(self) -> None:
        """Nothing: what is left behind is given back by the kernel."""

    def __enter__(self) -> HostMachine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return needs_emulator(f"a machine's {name}")


def needs_emulator(what: str) -> Any:
    """Skip the test that runs."""
    pytest.skip(f"needs the emulator: {what}")


def cards() -> tuple[str, ...]:
    """Names of cards that can stand for the machine's."""
    return tuple(MODELS)


def stand_in(card: str) -> None:
    """An emulated card in the place of the machine's: proves the switch, and runs the tests on another generation."""
    made = emulator.Machine(
        LINUX_7_3_USERQ, [MODELS[card]], shader=ShaderCore(keep=0), time_scale=_PATIENCE, strict=False
    )
    process = made.process()
    system.host = lambda: process
    state["emulated"] = made


def trouble() -> list[str]:
    """Hangs, faults and broken rules that the stand-in has seen; what a skipped test left behind is none."""
    made = state["emulated"]
    return [] if made is None else made.dmesg + [str(f) for f in made.findings if f.kind != "leak"]


def begin(card: str = "") -> None:
    """Find the card. card: "cuda:1", "opencl" or an emulated one's name; "" for the first GPU of any kind. Raises
    `pytest.UsageError`, one line, when there is none to test.
    """
    driver = card.partition(":")[0]
    if card in MODELS:
        stand_in(card)
    elif card and driver not in BY_DRIVER:
        raise pytest.UsageError(
            f"--gpu-card: {card} is none of {', '.join(BY_DRIVER)}, with :NUMBER for another than the first, nor of the"
            f" emulated {', '.join(cards())}"
        )
    reasons = []
    if card in ("", *MODELS):
        reasons.append(_begin_amd())
        if not reasons[0]:
            return
    for device in BY_DRIVER:
        if card not in MODELS and driver in ("", device):
            state["device"], reason = _of_driver(device, card)
            if not reason:
                return
            reasons.append(reason)
    raise pytest.UsageError(f"--gpu: no GPU to test: {'; '.join(reasons)}; see `zinc check`")


def _of_driver(device: Device, card: str) -> tuple[str, str]:
    """The first card of a driver, or the named one, and why there is none. A processor is taken where it is named."""
    found, reason = DRIVERS[device].find()
    number = parse_device(card).card if card else ""
    usable = [c for c in found if (str(c.number) == number if number else card or not c.processor)]
    taken = next((c for c in usable if not c.refusal), None)
    if taken is not None:
        state["processor"] = taken.processor
        return f"{device}:{taken.number}", ""
    refusals = "; ".join(c.refusal for c in usable) or f"{card or device}: none of {[c.name for c in found]}"
    return "", refusals if found else reason


def _begin_amd() -> str:
    """Try the interfaces of the first AMD GPU; why there is none."""
    from tests.amdgpu.queue import stage

    host = system.host()
    gpus = find_gpus(host)
    usable = [gpu for gpu in gpus if not gpu.refusal()]
    if not usable:
        return "; ".join(gpu.refusal() for gpu in gpus) or "amdgpu drives none"
    state["linux"], state["node"] = HostLinux(host), usable[0].render_node
    for name in tuple(stage.INTERFACES):
        found = probe_interface(name, state["node"], state["linux"])
        if found.seconds is None:
            state["refused"][name] = found.error
            del stage.INTERFACES[name]
    if stage.INTERFACES:
        return ""
    reasons = "; ".join(f"{name}: {why}" for name, why in state["refused"].items())
    return f"no interface of {state['node']} retires a fence: {reasons}"


def ignored(path: Path) -> bool:
    """Whether the switch leaves a file or folder out."""
    folders = (ON_DRIVERS,) if state["device"] else FOLDERS
    return not any(path.is_relative_to(folder) or folder.is_relative_to(path) for folder in folders)


def skip_reason(item: pytest.Item) -> str:
    """Why a test cannot run on the card; "" when it can, as far as is known before it runs."""
    name = item.nodeid.removeprefix("tests/")
    for beginning, why in EMULATED.items():
        if name.startswith(beginning):
            return f"needs the emulator: {why}"
    own = Path(item.path).relative_to(HERE).parts[1]
    return f"{own} cannot be used: {state['refused'][own]}" if own in state["refused"] else ""


def on_card() -> Iterator[None]:
    """Machines that tests make are the real one, from now until the end."""
    with pytest.MonkeyPatch.context() as patch:
        for name, module in tuple(sys.modules.items()):
            if not name.startswith(_PACKAGES):
                continue
            if getattr(module, "Machine", None) is emulator.Machine:
                patch.setattr(module, "Machine", HostMachine)
            if getattr(module, "NODE", None) == _EMULATED_NODE:
                patch.setattr(module, "NODE", state["node"])
        yield
