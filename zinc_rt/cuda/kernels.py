"""Kernels on an NVIDIA GPU: the driver's compiler makes machine code of PTX, which the cache keeps."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from typing import Final

from zinc_rt.cuda.calls import (
    ERROR_LOG,
    ERROR_LOG_BYTES,
    INPUT_PTX,
    LOCAL_BYTES,
    REGISTERS,
    SHARED_BYTES,
    THREADS,
)
from zinc_rt.cuda.devices import CudaCard
from zinc_rt.cuda.errors import CudaCallFailed, failure
from zinc_rt.errors import BackendError
from zinc_rt.lang.cache import CompileCache, cache_key
from zinc_rt.lang.gpu import GpuKernel
from zinc_rt.lang.image import Image

_LOG_BYTES: Final = 8192


@dataclass(frozen=True)
class CudaKernel:
    """A kernel of a loaded module. function: the driver's handle; registers: of a work-item; local_bytes: of each
    work-item's memory for what has no register; shared_bytes: of a workgroup.
    """

    name: str
    kernel: GpuKernel
    function: int
    registers: int
    local_bytes: int
    shared_bytes: int


class CudaModules:
    """The modules of a context, one for each kernel. Every call needs the context to be current.

    card: of `devices.find_cards`; cache: keeps the compiled code.
    """

    def __init__(self, card: CudaCard, cache: CompileCache | None) -> None:
        self._cuda, self._cache = card.cuda, cache or CompileCache(None)
        self._for, self._target = f"{card.architecture} CUDA {card.version}", card.target
        self._loaded: dict[tuple[str, bytes], CudaKernel] = {}
        self._modules: list[c_void_p] = []
        self._code: dict[tuple[str, bytes], bytes] = {}  # compiled, and not loaded yet

    def load(self, kernel: GpuKernel) -> CudaKernel:
        """The kernel, loaded once. Raises `BackendError` for another target's, `CudaCallFailed` with the compiler's
        lines.
        """
        key = (kernel.symbol, kernel.code)
        if key not in self._loaded:
            self._loaded[key] = self._load(kernel)
        return self._loaded[key]

    def compile(self, kernel: GpuKernel) -> bytes:
        """The machine code of a kernel that is not loaded, kept by its PTX, the GPU's architecture and the driver's
        version; b"" of one that is. Raises as `load`.
        """
        key = (kernel.symbol, kernel.code)
        if kernel.target != self._target:
            raise BackendError(f"{kernel.name} is compiled for {kernel.target}; {self._for} takes {self._target}")
        if key in self._loaded:
            return b""
        if key not in self._code:
            name = cache_key(("cubin", kernel.code, self._for))
            kept = self._cache.get(name)
            self._code[key] = self._compiled(kernel) if kept is None else kept.code
            if kept is None:
                self._cache.put(name, Image(self._code[key], {kernel.symbol: 0}, self._target))
        return self._code[key]

    def close(self) -> None:
        """Unload everything."""
        while self._modules:
            self._cuda.cuModuleUnload(self._modules.pop())
        self._loaded.clear()

    def _load(self, kernel: GpuKernel) -> CudaKernel:
        module, function = c_void_p(), c_void_p()
        self._cuda.cuModuleLoadData(byref(module), self.compile(kernel))
        del self._code[kernel.symbol, kernel.code]
        self._modules.append(module)
        self._cuda.cuModuleGetFunction(byref(function), module, kernel.symbol.encode())

        def of(number: int) -> int:
            value = c_int()
            self._cuda.cuFuncGetAttribute(byref(value), number, function)
            return value.value

        if of(THREADS) < kernel.workgroup:
            raise BackendError(
                f"{kernel.name} has workgroups of {kernel.workgroup} work-items with {of(REGISTERS)} registers each; a"
                f" multiprocessor holds {of(THREADS)}: use smaller workgroups"
            )
        assert function.value is not None, "the driver said that it is there"
        return CudaKernel(kernel.name, kernel, function.value, of(REGISTERS), of(LOCAL_BYTES), of(SHARED_BYTES))

    def _compiled(self, kernel: GpuKernel) -> bytes:
        log = ctypes.create_string_buffer(_LOG_BYTES)
        options = (c_int * 2)(ERROR_LOG, ERROR_LOG_BYTES)
        values = (c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)  # written until the link is destroyed
        state, found, size = c_void_p(), c_void_p(), c_size_t()
        self._cuda.cuLinkCreate_v2(2, options, values, byref(state))
        text = kernel.code + b"\0"
        try:
            name = kernel.symbol.encode()
            self._cuda.cuLinkAddData_v2(state, INPUT_PTX, text, len(text), name, 0, None, None)
            self._cuda.cuLinkComplete(state, byref(found), byref(size))
            return ctypes.string_at(found.value or 0, size.value)
        except CudaCallFailed as error:
            lines = log.value.decode(errors="replace").strip()
            raise failure(f"{error.call} of {kernel.name}", error.code, self._cuda.reason(error.code), lines) from None
        finally:
            self._cuda.cuLinkDestroy(state)
