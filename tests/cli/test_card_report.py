"""`zinc check --report`: what an owner of a card can send, and what must not be in it."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amdgpu_emu.core.core import ShaderCore
from amdgpu_emu.errors import GpuHang
from amdgpu_emu.machine import Machine
from amdgpu_emu.models import R9700, RAPHAEL
from amdgpu_emu.process import Process
from amdgpu_emu.profiles import LINUX_6_17, LINUX_7_3_USERQ
from amdgpu_emu.shader import Dispatch
from amdgpu_emu.shader_memory import ShaderMemory
from tests.cli.conftest import Outcome
from zinc_rt.amdgpu.gfx import GFX12
from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.backends.base import Backend
from zinc_rt.backends.diagnostics.calibration import SMALL
from zinc_rt.backends.diagnostics.crash_log import HUNG, WRONG, Contacts, situation
from zinc_rt.backends.diagnostics.differences import first_difference
from zinc_rt.backends.diagnostics.private import HIDDEN, scrubbed, secrets
from zinc_rt.backends.diagnostics.report import card_report
from zinc_rt.backends.diagnostics.steps import STEPS
from zinc_rt.backends.probe import find_gpus
from zinc_rt.cli.card_report import report, summary
from zinc_rt.ir.ops import elementwise
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.utils.installation import commit_of

Tree = dict[str, Any]


@pytest.fixture(autouse=True, scope="module")
def little_is_measured() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AmdBackend, "calibration", SMALL)
        yield


def only(monkeypatch: pytest.MonkeyPatch, *interfaces: str) -> None:
    """Have cards with these interfaces alone."""
    monkeypatch.setattr(
        "zinc_rt.backends.diagnostics.report.gfx_of", lambda version: replace(GFX12, interfaces=interfaces)
    )


def machine(**how: Any) -> Machine:
    """All interfaces, and a shader core."""
    return Machine(**{"profile": LINUX_7_3_USERQ, "shader": ShaderCore(keep=0), "time_scale": 30.0, **how})


def made(linux: Process, seen: list[Tree] | None = None) -> Tree:
    def keep(tree: Tree) -> None:
        if seen is not None:
            seen.append(json.loads(json.dumps(tree)))

    return card_report(linux, CompileCache(default_cache_dir()), keep)


def remembered(there: Machine, interface: str) -> str | None:
    """What is known of the first card's interface from then on."""
    linux = there.process()
    found = Contacts(default_cache_dir(), linux).recall(situation(linux, find_gpus(linux)[0], interface))
    return None if found is None else found.outcome


@pytest.fixture(scope="module")
def good() -> tuple[Tree, list[Tree]]:
    """The report on a machine where everything works, and its states on the way."""
    seen: list[Tree] = []
    compared: list[Backend] = []

    def once(backend: Backend) -> str | None:
        """All interfaces run the same kernels: their results are compared one by one on the first alone."""
        compared.append(backend)
        return first_difference(backend) if len(compared) == 1 else None

    with pytest.MonkeyPatch.context() as patch, machine() as there:
        patch.setattr("zinc_rt.backends.diagnostics.steps.first_difference", once)
        tree = made(there.process(), seen)
    assert len(compared) == 3
    return tree, seen


def test_everything_works(good: tuple[Tree, list[Tree]]) -> None:
    tree, _ = good
    assert (tree["schema"], tree["schema_version"], tree["running"]) == ("zinc-card-report", 1, None)
    assert tree["system"]["kernel"] == LINUX_7_3_USERQ.release
    assert tree["system"]["parameters"]["user_queue"] == "1"
    assert tree["system"]["parameters"]["cwsr_enable"] == "1"
    (card,) = tree["cards"]
    assert (card["gfx"], card["compute_units"], card["vram"]) == ("gfx1201", R9700.cu, R9700.vram)
    assert card["pci"]["device"] == "0x7551"
    assert card["clocks_mhz"]["max_engine"] == R9700.clock_mhz
    assert card["firmware"]["mec"]["version"] == R9700.firmware.mec
    assert card["kfd"]["kernel"] == card["kfd"]["computed"]
    assert card["kfd"]["used"]["save_area"] == R9700.cwsr_size
    assert list(card["interfaces"]) == ["cs", "kfd", "umq"]
    assert {"bandwidth", "barrier", "dispatch", "submission", *SMALL.levels} <= set(card["constants"])
    # What a barrier adds is a difference of two times, and nothing where noise is larger.
    assert all(value >= 0 for value in card["constants"].values())
    assert all(card["constants"][name] > 0 for name in ("bandwidth", "dispatch", "submission", *SMALL.levels))
    for way in card["interfaces"].values():
        assert way["ok"]
        assert set(way["steps"]) == set(STEPS)
        assert len(way["seconds"]["fence"]) == len(way["seconds"]["step"]) == 5
        assert way["differs"] is None


def test_what_remains_of_a_machine_that_stops(good: tuple[Tree, list[Tree]]) -> None:
    _, seen = good
    running = [(s["running"]["interface"], s["running"]["step"]) for s in seen if s["running"]]
    order = ["opened", "memory", "fence", "kernels", "results"]
    steps = [(name, step) for name in ("cs", "kfd", "umq") for step in order]
    assert running == [*steps[:5], ("cs", "constants"), *steps[5:]]
    assert seen[-1]["running"] is None
    half = next(
        s for s in seen if s["running"] == {"render_node": "/dev/dri/renderD128", "interface": "kfd", "step": "fence"}
    )
    assert half["cards"][0]["interfaces"]["cs"]["ok"]
    assert set(half["cards"][0]["interfaces"]["kfd"]["steps"]) == {"opened", "queue", "memory"}


def test_the_summary(good: tuple[Tree, list[Tree]]) -> None:
    text = "\n".join(summary(good[0]))
    assert "(1002:7551), gfx1201, 64 compute units, 32.0 GiB" in text
    for name in ("cs", "kfd", "umq"):
        assert f"| {name} | ok | ok | ok | ok | ok | ok |" in text


@pytest.mark.parametrize(
    ("call", "code", "interface", "step"),
    [
        ("AMDGPU_CTX", errno.ENOMEM, "cs", "queue"),
        ("AMDGPU_GEM_CREATE", errno.ENOMEM, "cs", "memory"),
        ("KFD_CREATE_QUEUE", errno.EINVAL, "kfd", "queue"),
        ("KFD_ACQUIRE_VM", errno.EBUSY, "kfd", "opened"),
        ("AMDGPU_USERQ", errno.EINVAL, "umq", "queue"),
    ],
)
def test_a_step_that_fails(call: str, code: int, interface: str, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, interface)
    with machine(shader=None) as there:
        there.inject(call, code)
        way = made(there.process())["cards"][0]["interfaces"][interface]
    assert not way["ok"]
    failed = way["steps"][step]
    assert list(way["steps"])[-1] == step
    assert (failed["ok"], failed["errno"]) == (False, code)
    assert failed["error"]
    assert failed["help"]


def test_wrong_bits_have_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """An activation that is wrong in the reference's eyes: the operation is found among those before and behind it."""
    right = elementwise.gated_rows

    def wrong(gate: np.ndarray, up: np.ndarray, attrs: Any) -> np.ndarray:
        return np.nextafter(right(gate, up, attrs), np.float32(9))

    monkeypatch.setattr(elementwise, "gated_rows", wrong)
    only(monkeypatch, "cs")
    with machine() as there:
        way = made(there.process())["cards"][0]["interfaces"]["cs"]
        assert remembered(there, "cs") == WRONG
    assert way["steps"]["results"]["kind"] == "WrongResults"
    assert way["differs"].startswith("SWIGLU")


class Hanging(ShaderCore):
    """Never comes to an end."""

    def run(self, dispatch: Dispatch, memory: ShaderMemory) -> None:
        raise GpuHang("the shader never ends")


def test_a_hang_does_not_end_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last step says so, with the kernel's log as the help; the next interface is tried."""
    only(monkeypatch, "cs", "kfd")
    monkeypatch.setitem(AmdBackend.__init__.__kwdefaults__, "timeout", 1.0)
    with machine(shader=Hanging(), time_scale=0.01, strict=False) as there:
        ways = made(there.process())["cards"][0]["interfaces"]
        assert {remembered(there, name) for name in ("cs", "kfd")} == {HUNG}
    for name in ("cs", "kfd"):
        assert {s: step["ok"] for s, step in ways[name]["steps"].items()}["results"] is False, name
        assert ways[name]["steps"]["results"]["kind"] in {"DeviceLost", "FenceTimeout"}
        assert "dmesg" in ways[name]["steps"]["results"]["help"]


PLANTED = (
    "4565675986337361990",
    "3f5c8e1b0a9d7c64",
    "4566190263048338532",
    "PLANTED-SERIAL-0017",
    "planted-host",
    "planted_user",
)


def test_nothing_private_gets_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An id in sysfs and in the topology, a serial number, a home folder in the cache's path, user and host."""
    home = tmp_path / "home" / "planted_user"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USER", "planted_user")
    monkeypatch.setattr("socket.gethostname", lambda: "planted-host.example")
    monkeypatch.setattr("getpass.getuser", lambda: "planted_user")
    only(monkeypatch, "cs")
    with machine(shader=None) as there:
        linux = there.process()
        files = linux._sysfs._files
        linux.list_dir("/sys/class/drm")
        folder = "/sys/class/drm/renderD128/device"
        files[f"{folder}/unique_id"] = "3f5c8e1b0a9d7c64\n"
        files[f"{folder}/serial_number"] = "PLANTED-SERIAL-0017\n"
        files[f"{folder}/product_name"] = "Radeon of planted_user, PLANTED-SERIAL-0017\n"
        files["/sys/module/amdgpu/parameters/lockup_timeout"] = "0x3f5c8e1b0a9d7c64 on planted-host\n"
        there.inject("AMDGPU_CTX", errno.EIO)
        monkeypatch.setattr(linux, "kernel_release", lambda: f"7.3.4-planted-host {home}/linux")
        path = tmp_path / "card.json"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ZINC_RT_CACHE_DIR", str(home / ".cache"))
            assert report(path, None, linux=linux) == 1
    text = path.read_text()
    for word in (*PLANTED, str(home), str(tmp_path), "planted"):
        assert word not in text, word
    assert HIDDEN in text
    assert json.loads(text)["cards"][0]["gfx"] == "gfx1201"


def test_words_are_removed_from_texts_alone() -> None:
    tree = {"a": "see /home/me/x.txt or ~/y/z and /dev/dri/renderD128, 10/20", "b": [12345678901234, 7], "c": True}
    want = {"a": f"see {HIDDEN} or {HIDDEN} and /dev/dri/renderD128, 10/20", "b": [HIDDEN, 7], "c": True}
    assert scrubbed(tree, {"12345678901234"}) == want
    assert scrubbed("melody of me", {"me"}) == f"melody of {HIDDEN}"


def test_secrets_of_a_machine() -> None:
    with machine(shader=None) as there:
        assert "4565675986337361990" in secrets(there.process())


def test_a_card_that_is_not_used() -> None:
    with machine(models=[RAPHAEL], profile=LINUX_6_17, shader=None) as there:
        tree = made(there.process())
    assert tree["cards"][0]["interfaces"] == {}
    assert "not tried" in "\n".join(summary(tree))
    assert "8.0 GiB of GTT" in "\n".join(summary(tree))


def test_the_command(zinc: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Machine(LINUX_6_17, []) as there:
        monkeypatch.setattr("zinc_rt.cli.card_report.host", there.process)
        done = zinc("check", "--report", tmp_path / "card.json")
    assert done.code == 1
    assert "No GPU that amdgpu drives." in done.out
    assert json.loads((tmp_path / "card.json").read_text())["cards"] == []
    assert "cannot be written" in zinc("check", "--report", tmp_path / "no" / "card.json").error


def test_commits(tmp_path: Path) -> None:
    git = tmp_path / ".git"
    (git / "refs/heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "packed-refs").write_text("# packed\n1234 refs/heads/main\n")
    assert commit_of(git) == "1234"
    (git / "refs/heads/main").write_text("5678\n")
    assert commit_of(git) == "5678"
    (git / "worktrees/other").mkdir(parents=True)
    (git / "worktrees/other/HEAD").write_text("9abc\n")
    (git / "worktrees/other/commondir").write_text("../..\n")
    (tmp_path / "link").write_text(f"gitdir: {git}/worktrees/other\n")
    assert commit_of(tmp_path / "link") == "9abc"
