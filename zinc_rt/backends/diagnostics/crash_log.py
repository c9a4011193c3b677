"""The memory of trials of GPUs: trials that began and did not come back, the results of others, and times of a soak.

A trial is the first work for a GPU through an interface. It can hang the GPU, and the machine with it. So a marker is
written to the disk before a trial and removed after it. A marker whose process has ended means a hang. Markers and
notes lie in the folder of compiled kernels; `zinc cache --clear` leaves them there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import zinc_rt
from zinc_rt.backends.probe import AmdCard
from zinc_rt.backends.processes import is_alive, this_process
from zinc_rt.errors import ComputedWrong, DeviceLost, FenceTimeout, ZincError, release_frames
from zinc_rt.lang.errors import ImageError
from zinc_rt.lang.folder import HALF_WRITTEN, Folder, FolderRefused
from zinc_rt.lang.notes import note_from_bytes, note_to_bytes
from zinc_rt.utils.linux import Linux

PROVEN: Final = "proven"
HUNG: Final = "hung"
WRONG: Final = "wrong"
_OUTCOMES: Final = (PROVEN, HUNG, WRONG)
TRY_AGAIN: Final = "`zinc check --gpu` tries it again"
PATIENCE: Final = 600.0
"""Seconds after which a trial that is still under way counts as hung; none takes as long without saying so."""
SOAK_SECONDS: Final = 60.0
"""A soak of at least this long decides which interface is tried first."""
_MARK, _NOTE = "trying", "note"
_KEPT = 64  # notes; of machines whose folder this is, and of versions that were


@dataclass(frozen=True)
class Situation:
    """The machine and versions that a proof holds for. machine: a digest; kernel: its release; card: device and PCI
    address; firmware: versions, see `AmdCard`; version: of this package; interface: cs, kfd or umq,
    or a driver and its version.
    """

    machine: str
    kernel: str
    card: str
    firmware: tuple[int, ...]
    version: str
    interface: str

    @property
    def key(self) -> str:
        """Its name in the folder, 32 hex digits."""
        return blake2b(json.dumps(asdict(self), sort_keys=True).encode(), digest_size=16).hexdigest()


def device_situation(linux: Linux, card: str, firmware: tuple[int, ...], interface: str) -> Situation:
    """The situation of a device of this machine now."""
    identity = ""
    with suppress(OSError):
        identity = linux.read_text("/etc/machine-id").strip()
    machine = blake2b(identity.encode(), digest_size=8, person=b"zinc_rt").hexdigest()
    return Situation(machine, linux.kernel_release(), card, firmware, zinc_rt.__version__, interface)


def situation(linux: Linux, gpu: AmdCard, interface: str) -> Situation:
    """The situation of an AMD GPU behind an interface."""
    return device_situation(linux, f"{gpu.device_id:#06x} {gpu.pci or gpu.short}", gpu.firmware, interface)


@dataclass(frozen=True)
class Contact:
    """The result of a trial. outcome: `PROVEN`, `HUNG` or `WRONG`; when: seconds of the clock; reason: of a failure.
    soak: seconds that the self-test was repeated without a failure; step: its median time, seconds.
    """

    outcome: str
    when: float
    reason: str = ""
    soak: float = 0.0
    step: float = 0.0

    @property
    def date(self) -> str:
        """When, for a message."""
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(self.when))

    @property
    def failure(self) -> str:
        """How the trial failed, as a verb."""
        return "hung" if self.outcome == HUNG else "computed wrong"


class Contacts:
    """The memory of one machine's GPUs.

    Args:
        folder: where it lies; None: nothing is remembered.
        linux: the machine.
        notify: gets a line, once, when nothing can be remembered.
    """

    def __init__(self, folder: Path | None, linux: Linux, notify: Callable[[str], None] | None = None) -> None:
        self._path, self._linux, self._notify = folder, linux, notify
        self._writable = folder is not None
        self._folder: Folder | None = None

    def recall(self, about: Situation) -> Contact | None:
        """How the last trial ended; None where nothing is known."""
        folder = self._open(create=False)
        if folder is None:
            return None
        found = self._noted(folder, about)
        for name in self._names(folder, about, _MARK):
            begun = _read(folder, name)
            if begun is not None and not self._under_way(*begun):
                reason = "the process that tried it died, or hung"
                found = Contact(HUNG, begun[1], reason)
        return found

    @contextmanager
    def trial(self, about: Situation) -> Iterator[Callable[[], None]]:
        """A marker lies in the folder for the time of the `with` block. It stays when the process ends within, or is
        interrupted, as a user does who sees a hang. Gives a function that says that all is well, for long ones.
        """
        name = self._mark(about)
        try:
            yield partial(self._touch, name)
        except Exception:
            self._unmark(name)
            raise
        self._unmark(name)

    def store(self, about: Situation, contact: Contact) -> None:
        """Remember how a trial ended; what earlier ones left is removed. The longest soak is kept until one fails."""
        folder = self._open(create=True)
        if folder is None or not self._writable:
            return
        before = self._noted(folder, about)
        left = [name for name in self._names(folder, about, _MARK) if not self._alive(folder, name)]
        if contact.outcome == PROVEN and before is not None and before.outcome == PROVEN:
            if not left and not contact.soak:
                return  # nothing new: not at each start
            if contact.soak < before.soak:
                contact = Contact(PROVEN, contact.when, "", before.soak, before.step)
        if self._write(folder, f"gpu-{about.key}.{_NOTE}", {**asdict(contact), "about": asdict(about)}):
            for name in left:
                folder.remove(name)
            _prune(folder)

    def proven(self, about: Situation, soak: float = 0.0, step: float = 0.0) -> None:
        """Remember that the GPU computed right."""
        self.store(about, Contact(PROVEN, time.time(), "", soak, step))

    def failed(self, about: Situation, outcome: str, reason: str) -> None:
        """Remember that it hung, or computed wrong."""
        self.store(about, Contact(outcome, time.time(), reason))

    def remember(self, about: Situation, error: ZincError, when: str = "") -> None:
        """Remember a hang or wrong results; other errors say nothing of the GPU. when: stands before the reason."""
        if isinstance(error, (FenceTimeout, DeviceLost)):
            self.failed(about, HUNG, when + brief(error))
        elif isinstance(error, ComputedWrong):
            self.failed(about, WRONG, f"{when}{error}")

    def is_proven(self, about: Situation) -> bool:
        """Whether the last trial ended well."""
        known = self.recall(about)
        return known is not None and known.outcome == PROVEN

    @contextmanager
    def proof(self, about: Situation) -> Iterator[None]:
        """The `with` block tries a device, as a `trial` where it is not proven, and how it ends is remembered."""
        with nullcontext() if self.is_proven(about) else self.trial(about):
            try:
                yield
            except ZincError as error:
                self.remember(about, error)
                release_frames(error)
                raise
            self.proven(about)

    # Within.

    def _noted(self, folder: Folder, about: Situation) -> Contact | None:
        found = _read(folder, f"gpu-{about.key}.{_NOTE}")
        return None if found is None else _contact(found[0])

    def _names(self, folder: Folder, about: Situation, kind: str) -> list[str]:
        start = f"gpu-{about.key}.{kind}"
        with suppress(OSError):
            return [n for n in folder.names() if n.startswith(start) and not n.endswith(HALF_WRITTEN)]
        return []

    def _alive(self, folder: Folder, name: str) -> bool:
        begun = _read(folder, name)
        return begun is not None and self._under_way(*begun)

    def _under_way(self, marker: dict[str, Any], when: float) -> bool:
        return time.time() - when < PATIENCE and is_alive(self._linux, marker)

    def _mark(self, about: Situation) -> str:
        folder = self._open(create=True)
        name = f"gpu-{about.key}.{_MARK}-{self._linux.pid()}"
        if folder is None or not self._writable:
            return ""
        return name if self._write(folder, name, {**this_process(self._linux), "about": asdict(about)}) else ""

    def _unmark(self, name: str) -> None:
        if name and self._folder is not None:
            self._folder.remove(name)

    def _touch(self, name: str) -> None:
        if name and self._folder is not None:
            self._folder.touch(name)

    def _write(self, folder: Folder, name: str, tree: dict[str, Any]) -> bool:
        try:
            folder.write(name, note_to_bytes(tree), durable=True)
        except OSError as error:
            self._say(f"{error.strerror or error}")
            return False
        return True

    def _open(self, create: bool) -> Folder | None:
        if self._folder is None and self._path is not None and self._writable:
            try:
                self._folder = Folder.open(self._path, create)
            except FolderRefused as error:
                self._say(str(error))
        return self._folder

    def _say(self, why: str) -> None:
        if self._writable and self._notify is not None:
            self._notify(f"{self._path}: {why}; how this GPU does is not remembered for the next start")
        self._writable = False


def brief(error: ZincError) -> str:
    """The short form of an error after which another device is tried: a hang without what the queue looked like."""
    text = str(error)
    return text.partition(";")[0] if isinstance(error, (FenceTimeout, DeviceLost)) else text


def _read(folder: Folder, name: str) -> tuple[dict[str, Any], float] | None:
    """A note or marker and the time of its last writing; None for one that is gone, an empty tree for a damaged one."""
    try:
        found = folder.read(name)
    except OSError:
        return None
    try:
        return note_from_bytes(found.data), found.used
    except ImageError:
        return {}, found.used


def _contact(tree: dict[str, Any]) -> Contact | None:
    """None for a note that somebody else wrote."""
    try:
        numbers = {name: float(tree[name]) for name in ("when", "soak", "step")}
        found = Contact(outcome=str(tree["outcome"]), reason=str(tree["reason"]), **numbers)
    except (KeyError, TypeError, ValueError):
        return None
    return found if found.outcome in _OUTCOMES else None


def _prune(folder: Folder) -> None:
    """Remove the oldest notes beyond a number; markers stay."""
    with suppress(OSError):
        notes = [(used, name) for name, _, used in folder.files() if name.startswith("gpu-") and name.endswith(_NOTE)]
        for _, name in sorted(notes, reverse=True)[_KEPT:]:
            folder.remove(name)
