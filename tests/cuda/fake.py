"""A libcuda.so.1 for tests: strict about every rule of its documents, with kernels that run on OpenCL's CPU driver.

Its functions are called through C, with the types that `zinc_rt.cuda.calls` declares. Memory lies at addresses of this
process; what is new or freed holds `GARBAGE`. Work runs late, when somebody waits for it, and the nodes of a graph in
any order that their edges allow. A rule that is broken becomes a finding and the result that a driver would give.

Parameters, workgroups and names of kernels are read from the PTX. What a kernel does is known by its symbol (`SPECS`).
"""

from __future__ import annotations

import ctypes
import random
import re
import threading
from collections import deque
from ctypes import c_char_p, c_int, c_void_p
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.cuda import opencl_cpu
from zinc_rt.cuda.calls import NAMES, SIGNATURES, DriverCalls

GARBAGE = 0xC7
SPECS: dict[str, Any] = {}
"""By symbol; the tests fill it with what is compiled (`stage.cuda_backend`)."""
RESULTS = {
    0: "SUCCESS", 1: "INVALID_VALUE", 2: "OUT_OF_MEMORY", 3: "NOT_INITIALIZED", 100: "NO_DEVICE", 101: "INVALID_DEVICE",
    200: "INVALID_IMAGE", 201: "INVALID_CONTEXT", 218: "INVALID_PTX", 400: "INVALID_HANDLE", 500: "NOT_FOUND",
    600: "NOT_READY", 700: "ILLEGAL_ADDRESS", 719: "LAUNCH_FAILED",
}  # fmt: skip
_SIZES = {"u8": 1, "b8": 1, "u16": 2, "b16": 2, "u32": 4, "b32": 4, "f32": 4, "u64": 8, "b64": 8, "f64": 8}
_MAGIC = b"FAKE CUBIN\n"
_NEED_CONTEXT = ("cuMem", "cuLink", "cuModule", "cuFunc", "cuStream", "cuEvent", "cuLaunch", "cuGraph")


class Refused(Exception):
    """A call ends with this result; finding: what rule it breaks, "" for none."""

    def __init__(self, code: int, finding: str = "") -> None:
        super().__init__(finding)
        self.code, self.finding = code, finding


@dataclass
class FakeGpu:
    name: str = "Fake 4090"
    memory: int = 1 << 28
    pci: str = "0000:0A:00.0"
    attributes: dict[int, int] = field(
        default_factory=lambda: {10: 32, 16: 128, 17: 0, 20: 0, 36: 10_501_000, 37: 384, 41: 1, 75: 8, 76: 9}
    )


@dataclass(eq=False)
class Function:
    symbol: str
    sizes: tuple[int, ...]
    workgroup: int
    module: int


@dataclass(eq=False)
class Node:
    """function: None for an empty node."""

    graph: int
    before: tuple[int, ...]
    function: Function | None = None
    groups: tuple[int, int, int] = (1, 1, 1)
    arguments: tuple[bytes, ...] = ()


@dataclass(eq=False)
class Stream:
    work: deque[Any] = field(default_factory=deque)


@dataclass(eq=False)
class Event:
    timed: bool
    waiting: int = 0  # times in streams that have not come to it
    looked: bool = False
    recorded: bool = False
    at: float = 0.0


class FakeCuda:
    """gpus: of the machine; version: of the driver; seed: of the order of nodes.

    fail: result by name of a call, for the next one; lost_after: kernels until the GPU is lost; hangs: whether nothing
    ends; ptx_error: the compiler's line, which refuses all PTX; launched: symbols in the order in which they ran;
    graphs_launched, compiled: counts.
    """

    def __init__(self, gpus: list[FakeGpu] | None = None, version: int = 12040, seed: int = 0) -> None:
        self.gpus = [FakeGpu()] if gpus is None else gpus
        self.version = version
        self.findings: list[str] = []
        self.fail: dict[str, int] = {}
        self.lost_after: int | None = None
        self.hangs = False
        self.ptx_error = ""
        self.launched: list[str] = []
        self.graphs_launched = self.compiled = 0
        self.calls_made: dict[str, int] = {}
        self._random = random.Random(seed)
        self._begun = False
        self._lost = 0
        self._contexts: dict[int, int] = {}  # device: times retained
        self._current = threading.local()
        self._memory: dict[int, np.ndarray] = {}
        self._registered: dict[int, int] = {}
        self._gone: list[np.ndarray] = []  # so that an address is not used twice
        self._handles: dict[int, Any] = {}
        self._next = 0x1000
        self._clock = 0.0
        self._texts: list[Any] = []

    def calls(self) -> DriverCalls:
        """What `zinc_rt.cuda.calls.load` gives."""
        return DriverCalls(self._find)

    def leaks(self) -> list[str]:
        """What was not given back."""
        left = [f"{type(x).__name__}" for x in self._handles.values() if not isinstance(x, Function | Node)]
        left += ["memory"] * len(self._memory) + ["registered memory"] * len(self._registered)
        return left + ["context"] * sum(self._contexts.values())

    def _find(self, name: str, types: tuple[Any, ...]) -> Any:
        assert (NAMES | SIGNATURES)[name] == types
        method = getattr(self, name)

        def run(*arguments: Any) -> int:
            self.calls_made[name] = self.calls_made.get(name, 0) + 1
            try:
                if name not in NAMES:
                    self._admit(name)
                method(*arguments)
            except Refused as refused:
                if refused.finding:
                    self.findings.append(f"{name}: {refused.finding}")
                return refused.code
            except BaseException as error:
                self.findings.append(f"{name}: {type(error).__name__} {error}")
                return 999
            return 0

        inner = ctypes.CFUNCTYPE(c_int, *(c_void_p if t is c_char_p else t for t in types))(run)
        function = ctypes.CFUNCTYPE(c_int, *types)(ctypes.cast(inner, c_void_p).value)
        function.held = inner  # for as long as somebody may call it
        return function

    def _admit(self, name: str) -> None:
        if name in self.fail:
            raise Refused(self.fail.pop(name))
        if not self._begun and name not in ("cuInit", "cuDriverGetVersion"):
            raise Refused(3, "before cuInit")
        if name.startswith(_NEED_CONTEXT):
            current = getattr(self._current, "device", None)
            if current is None or not self._contexts.get(current):
                raise Refused(201, "no context is current in this thread")
        if self._lost and not name.startswith(("cuDevice", "cuCtx")):
            raise Refused(self._lost)

    def _new(self, out: Any, made: Any) -> None:
        self._next += 16
        self._handles[self._next] = made
        out[0] = self._next

    def _of(self, handle: int | None, kind: type[Any]) -> Any:
        found = self._handles.get(handle or 0)
        if not isinstance(found, kind):
            raise Refused(400, f"{handle!r} is no {kind.__name__}")
        return found

    def _drop(self, handle: int | None, kind: type[Any]) -> Any:
        found = self._of(handle, kind)
        del self._handles[handle or 0]
        return found

    # Errors, devices, the context.

    def cuGetErrorName(self, code: int, out: Any) -> None:
        self._text(out, f"CUDA_{'' if not code else 'ERROR_'}{RESULTS[code]}" if code in RESULTS else None)

    def cuGetErrorString(self, code: int, out: Any) -> None:
        self._text(out, RESULTS[code].lower().replace("_", " ") if code in RESULTS else None)

    def _text(self, out: Any, text: str | None) -> None:
        if text is None:
            raise Refused(1)
        self._texts.append(ctypes.create_string_buffer(text.encode()))
        out[0] = ctypes.cast(self._texts[-1], c_char_p)

    def cuInit(self, flags: int) -> None:
        if flags:
            raise Refused(1, "flags must be 0")
        if not self.gpus:
            raise Refused(100)
        self._begun = True

    def cuDriverGetVersion(self, out: Any) -> None:
        out[0] = self.version

    def cuDeviceGetCount(self, out: Any) -> None:
        out[0] = len(self.gpus)

    def cuDeviceGet(self, out: Any, number: int) -> None:
        if not 0 <= number < len(self.gpus):
            raise Refused(101)
        out[0] = number

    def cuDeviceGetName(self, out: int, size: int, device: int) -> None:
        self._copied(out, size, self.gpus[device].name)

    def cuDeviceGetPCIBusId(self, out: int, size: int, device: int) -> None:
        self._copied(out, size, self.gpus[device].pci)

    def _copied(self, out: int, size: int, text: str) -> None:
        ctypes.memmove(out, text.encode() + b"\0", min(size, len(text) + 1))

    def cuDeviceGetAttribute(self, out: Any, number: int, device: int) -> None:
        if number not in self.gpus[device].attributes:
            raise Refused(1, f"attribute {number} is not among those of this fake")
        out[0] = self.gpus[device].attributes[number]

    def cuDeviceTotalMem_v2(self, out: Any, device: int) -> None:
        out[0] = self.gpus[device].memory

    def cuDeviceGetUuid_v2(self, out: int, device: int) -> None:
        ctypes.memmove(out, bytes(range(device, device + 16)), 16)

    def cuDevicePrimaryCtxRetain(self, out: Any, device: int) -> None:
        self._contexts[device] = self._contexts.get(device, 0) + 1
        out[0] = 0xC000 + device

    def cuDevicePrimaryCtxRelease_v2(self, device: int) -> None:
        if not self._contexts.get(device):
            raise Refused(201, "a context that is not retained")
        self._contexts[device] -= 1

    def cuCtxSetCurrent(self, context: int | None) -> None:
        device = (context or 0) - 0xC000
        if not self._contexts.get(device):
            raise Refused(201, f"{context!r} is no context that is retained")
        self._current.device = device

    # Memory.

    @property
    def _gpu(self) -> FakeGpu:
        return self.gpus[self._current.device]

    def cuMemGetInfo_v2(self, free: Any, total: Any) -> None:
        total[0] = self._gpu.memory
        free[0] = self._gpu.memory - sum(m.size for m in self._memory.values())

    def cuMemAlloc_v2(self, out: Any, size: int) -> None:
        if not size:
            raise Refused(1, "an allocation of 0 bytes")
        if size + sum(m.size for m in self._memory.values()) > self._gpu.memory:
            raise Refused(2)
        raw = np.full(size + 512, GARBAGE, np.uint8)
        made = raw[-raw.ctypes.data % 512 :][:size]
        self._memory[made.ctypes.data] = made
        out[0] = made.ctypes.data

    def cuMemFree_v2(self, address: int) -> None:
        if address not in self._memory:
            raise Refused(1, f"{address:#x} is not allocated")
        made = self._memory.pop(address)
        made[:] = GARBAGE
        self._gone.append(made)

    def cuMemHostRegister_v2(self, address: int | None, size: int, flags: int) -> None:
        if not address or not size or flags & ~3:
            raise Refused(1, f"{size} bytes at {address!r}, flags {flags}")
        if any(address < start + n and start < address + size for start, n in self._registered.items()):
            raise Refused(712, "registered already")
        ctypes.memset(address, GARBAGE, size)
        self._registered[address] = size

    def cuMemHostGetDevicePointer_v2(self, out: Any, address: int | None, flags: int) -> None:
        if address not in self._registered or flags:
            raise Refused(1, f"{address!r} is not registered, or flags {flags}")
        out[0] = address

    def cuMemHostUnregister(self, address: int | None) -> None:
        if self._registered.pop(address or 0, None) is None:
            raise Refused(713, f"{address!r} is not registered")

    def _within(self, address: int, size: int) -> bool:
        spans = [*((a, m.size) for a, m in self._memory.items()), *self._registered.items()]
        return any(start <= address and address + size <= start + n for start, n in spans)

    def cuMemcpyHtoDAsync_v2(self, target: int, source: int | None, size: int, stream: int | None) -> None:
        held = ctypes.string_at(source or 0, size)

        def copy() -> None:
            self._expect(target, size)
            ctypes.memmove(target, held, size)

        self._of(stream, Stream).work.append(copy)

    def cuMemcpyDtoHAsync_v2(self, target: int | None, source: int, size: int, stream: int | None) -> None:
        def copy() -> None:
            self._expect(source, size)
            ctypes.memmove(target or 0, source, size)

        self._of(stream, Stream).work.append(copy)

    def _expect(self, address: int, size: int) -> None:
        if not self._within(address, size):
            self._lost = 700
            raise Refused(700, f"{size} bytes at {address:#x} are not all in one allocation")

    # Modules.

    def cuLinkCreate_v2(self, n: int, options: Any, values: Any, out: Any) -> None:
        given = {options[i]: values[i] for i in range(n)}
        if set(given) - {5, 6} or len(given) != n:
            raise Refused(1, f"options {given}")
        self._new(out, {"log": given.get(5), "size": given.get(6), "text": b""})

    def cuLinkAddData_v2(
        self, state: int | None, kind: int, data: int | None, size: int, name: int | None, n: int, *options: Any
    ) -> None:
        link, text = self._of(state, dict), ctypes.string_at(data or 0, size)
        if kind != 1 or n or not text.endswith(b"\0") or text.count(b"\0") != 1:
            raise Refused(1, f"kind {kind}, {n} options, {size} bytes that shall end with the only NUL")
        if self.ptx_error:
            line = self.ptx_error.encode()[: link["size"] - 1] + b"\0"
            ctypes.memmove(link["log"], line, len(line))
            raise Refused(218)
        link["text"] = text[:-1]

    def cuLinkComplete(self, state: int | None, out: Any, size: Any) -> None:
        link = self._of(state, dict)
        code = _MAGIC + link["text"]
        link["code"] = ctypes.create_string_buffer(code, len(code))
        out[0], size[0] = ctypes.addressof(link["code"]), len(code)
        self.compiled += 1

    def cuLinkDestroy(self, state: int | None) -> None:
        self._drop(state, dict).clear()

    def cuModuleLoadData(self, out: Any, image: int | None) -> None:
        text = ctypes.string_at(image or 0)
        if not text.startswith(_MAGIC):
            raise Refused(200, "no machine code")
        self._new(out, text[len(_MAGIC) :].decode())

    def cuModuleUnload(self, module: int | None) -> None:
        self._drop(module, str)

    def cuModuleGetFunction(self, out: Any, module: int | None, name: int | None) -> None:
        text, symbol = self._of(module, str), ctypes.string_at(name or 0).decode()
        found = re.search(rf"\.entry {re.escape(symbol)}\((.*?)\)\s*(.*?)\{{", text, re.DOTALL)
        if found is None:
            raise Refused(500)
        sizes = tuple(_SIZES[kind] for kind in re.findall(r"\.param \.(\w+)", found[1]))
        workgroup = re.search(r"\.reqntid (\d+)", found[2])
        self._new(out, Function(symbol, sizes, int(workgroup[1]) if workgroup else 0, module or 0))

    def cuFuncGetAttribute(self, out: Any, number: int, function: int | None) -> None:
        found = self._of(function, Function)
        out[0] = {0: max(found.workgroup, 1), 1: 0, 3: 0, 4: 32}[number]

    # Streams and events.

    def cuStreamCreate(self, out: Any, flags: int) -> None:
        if flags not in (0, 1):
            raise Refused(1, f"flags {flags}")
        self._new(out, Stream())

    def cuStreamDestroy_v2(self, stream: int | None) -> None:
        if self._drop(stream, Stream).work:
            raise Refused(1, "work of the stream has not run")

    def cuEventCreate(self, out: Any, flags: int) -> None:
        if flags not in (0, 2):
            raise Refused(1, f"flags {flags}")
        self._new(out, Event(not flags))

    def cuEventRecord(self, event: int | None, stream: int | None) -> None:
        found = self._of(event, Event)
        found.waiting += 1
        found.recorded, found.looked = True, False
        self._of(stream, Stream).work.append(found)

    def cuEventQuery(self, event: int | None) -> None:
        found = self._of(event, Event)
        if not found.waiting:
            return
        if self.hangs or not found.looked:
            found.looked = True
            raise Refused(600)
        stream = next(s for s in self._handles.values() if isinstance(s, Stream) and found in s.work)
        while found.waiting:
            self._step(stream)

    def _step(self, stream: Stream) -> None:
        work = stream.work.popleft()
        if isinstance(work, Event):
            work.waiting -= 1
            work.at = self._clock
        else:
            work()

    def cuEventElapsedTime(self, out: Any, start: int | None, end: int | None) -> None:
        first, last = self._of(start, Event), self._of(end, Event)
        if not (first.timed and last.timed and first.recorded and last.recorded):
            raise Refused(400, "events without times, or that were not recorded")
        if first.waiting or last.waiting:
            raise Refused(600)
        out[0] = last.at - first.at

    def cuEventDestroy_v2(self, event: int | None) -> None:
        self._drop(event, Event)

    # Launches and graphs.

    def _described(self, function: int | None, grid: Any, block: Any, shared: int, parameters: Any, extra: Any) -> Node:
        found = self._of(function, Function)
        self._of(found.module, str)
        if block != (found.workgroup, 1, 1):
            raise Refused(1, f"{found.symbol}: workgroups of {block}, its PTX says {found.workgroup}")
        if not all(1 <= n <= limit for n, limit in zip(grid, ((1 << 31) - 1, 65535, 65535), strict=True)):
            raise Refused(1, f"{found.symbol}: a grid of {grid}")
        if shared or extra:
            raise Refused(1, f"{found.symbol}: {shared} bytes of shared memory, extra {extra}")
        values = tuple(ctypes.string_at(parameters[i], size) for i, size in enumerate(found.sizes))
        return Node(0, (), found, grid, values)

    def _run(self, node: Node) -> None:
        if node.function is None:
            return
        if self.lost_after is not None:
            self.lost_after -= 1
            if self.lost_after < 0:
                self._lost = 719
                raise Refused(719)
        symbol = node.function.symbol
        spec = SPECS[symbol]
        for (name, kind), raw in zip(spec_parameters(spec), node.arguments, strict=True):
            if kind and not self._within(int.from_bytes(raw, "little"), 1):
                self._lost = 700
                raise Refused(700, f"{symbol}: {name} points to no memory")
        opencl_cpu.run(spec, node.groups, list(node.arguments))
        self.launched.append(symbol)
        self._clock += 1.0

    def cuLaunchKernel(self, function: int | None, *rest: Any) -> None:
        *sizes, shared, stream, parameters, extra = rest
        node = self._described(function, tuple(sizes[:3]), tuple(sizes[3:]), shared, parameters, extra)
        self._of(stream, Stream).work.append(lambda: self._run(node))

    def cuGraphCreate(self, out: Any, flags: int) -> None:
        if flags:
            raise Refused(1, "flags must be 0")
        self._new(out, [])

    def _add(self, out: Any, graph: int | None, before: Any, n: int, node: Node) -> None:
        node.graph, node.before = graph or 0, tuple(before[i] for i in range(n))
        nodes = self._of(graph, list)
        if missing := [x for x in node.before if x not in nodes]:
            raise Refused(1, f"edges from {missing}, which are no nodes of this graph")
        if len(set(node.before)) != n:
            raise Refused(1, "an edge twice")
        self._new(out, node)
        nodes.append(out[0])

    def cuGraphAddKernelNode(self, out: Any, graph: int | None, before: Any, n: int, about: Any) -> None:
        given = about[0]
        grid, block = tuple(given.grid), tuple(given.block)
        node = self._described(given.func, grid, block, given.shared, given.parameters, given.extra)
        self._add(out, graph, before, n, node)

    def cuGraphAddEmptyNode(self, out: Any, graph: int | None, before: Any, n: int) -> None:
        self._add(out, graph, before, n, Node(0, ()))

    def cuGraphInstantiateWithFlags(self, out: Any, graph: int | None, flags: int) -> None:
        if flags:
            raise Refused(1, f"flags {flags}")
        nodes = self._of(graph, list)
        self._new(out, {x: self._of(x, Node) for x in nodes} | {0: None})

    def cuGraphDestroy(self, graph: int | None) -> None:
        for node in self._drop(graph, list):
            self._drop(node, Node)

    def cuGraphLaunch(self, exec_: int | None, stream: int | None) -> None:
        nodes = {x: node for x, node in self._of(exec_, dict).items() if x}
        self.graphs_launched += 1

        def run() -> None:
            done: set[int] = set()
            while len(done) < len(nodes):
                ready = [x for x in nodes if x not in done and done.issuperset(nodes[x].before)]
                chosen = self._random.choice(ready)
                self._run(nodes[chosen])
                done.add(chosen)

        self._of(stream, Stream).work.append(run)

    def cuGraphExecDestroy(self, exec_: int | None) -> None:
        self._drop(exec_, dict)


def spec_parameters(spec: Any) -> list[tuple[str, bool]]:
    """Name of each parameter, and whether it is a pointer."""
    from zinc_rt.lang.frontend import interface
    from zinc_rt.lang.target import TARGETS
    from zinc_rt.lang.types import Ptr

    return [(name, isinstance(kind, Ptr)) for name, kind in interface(spec, TARGETS["ptx80"]).parameters]
