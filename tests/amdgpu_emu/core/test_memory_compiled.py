"""What LLVM makes of generic pointers, buffer resources and intrinsics that the kernel language has no words for."""

from __future__ import annotations

from functools import cache

import numpy as np

from tests.amdgpu_emu.core.stage import Stage
from tests.amdgpu_emu.core.test_memory_buffers import RAW, STRUCTURED_WITH_OFFSET, resource
from tests.compiled import images
from zinc_rt.lang.compiler import Module
from zinc_rt.lang.image import Image
from zinc_rt.lang.target import TARGETS

IR = """
@lds = internal addrspace(3) global [64 x i32] poison, align 16

declare i32 @llvm.amdgcn.ds.append.p3(ptr addrspace(3), i1 immarg)
declare i32 @llvm.amdgcn.ds.consume.p3(ptr addrspace(3), i1 immarg)
declare i32 @llvm.amdgcn.raw.ptr.buffer.load.i32(ptr addrspace(8), i32, i32, i32 immarg)
declare <2 x i32> @llvm.amdgcn.struct.ptr.buffer.load.v2i32(ptr addrspace(8), i32, i32, i32, i32 immarg)
declare void @llvm.amdgcn.raw.ptr.buffer.store.i32(i32, ptr addrspace(8), i32, i32, i32 immarg)
declare i32 @llvm.amdgcn.raw.ptr.buffer.atomic.add.i32(i32, ptr addrspace(8), i32, i32, i32 immarg)
declare <2 x i32> @llvm.amdgcn.s.buffer.load.v2i32(<4 x i32>, i32, i32 immarg)
declare <8 x i16> @llvm.amdgcn.global.load.tr.b128.v8i16(ptr addrspace(1))

; Lane 3 k has its number in LDS, 3 k + 1 in scratch, 3 k + 2 in memory; all go through one pointer.
define amdgpu_cs void @generic(ptr addrspace(1) inreg %out, i32 %lane) {
  %private = alloca [4 x i32], align 4, addrspace(5)
  %in_private = getelementptr i32, ptr addrspace(5) %private, i32 2
  %in_lds = getelementptr i32, ptr addrspace(3) @lds, i32 %lane
  %in_memory = getelementptr i32, ptr addrspace(1) %out, i32 %lane
  %a = addrspacecast ptr addrspace(3) %in_lds to ptr
  %b = addrspacecast ptr addrspace(5) %in_private to ptr
  %c = addrspacecast ptr addrspace(1) %in_memory to ptr
  %kind = urem i32 %lane, 3
  %first = icmp eq i32 %kind, 0
  %second = icmp eq i32 %kind, 1
  %bc = select i1 %second, ptr %b, ptr %c
  %p = select i1 %first, ptr %a, ptr %bc
  %number = mul i32 %lane, 7
  store volatile i32 %number, ptr %p
  %old = atomicrmw add ptr %p, i32 1000 monotonic
  %new = load volatile i32, ptr %p
  %sum = add i32 %old, %new
  %at = getelementptr i32, ptr addrspace(1) %in_memory, i32 64
  store i32 %sum, ptr addrspace(1) %at
  ret void
}

define amdgpu_cs void @raw(ptr addrspace(8) inreg %r, ptr addrspace(8) inreg %w, i32 %lane) {
  %at = mul i32 %lane, 4
  %x = call i32 @llvm.amdgcn.raw.ptr.buffer.load.i32(ptr addrspace(8) %r, i32 %at, i32 0, i32 0)
  call void @llvm.amdgcn.raw.ptr.buffer.store.i32(i32 %x, ptr addrspace(8) %w, i32 %at, i32 128, i32 0)
  %old = call i32 @llvm.amdgcn.raw.ptr.buffer.atomic.add.i32(i32 5, ptr addrspace(8) %w, i32 0, i32 0, i32 0)
  ret void
}

define amdgpu_cs void @records(ptr addrspace(8) inreg %r, ptr addrspace(1) inreg %out, i32 %lane) {
  %x = call <2 x i32> @llvm.amdgcn.struct.ptr.buffer.load.v2i32(ptr addrspace(8) %r, i32 %lane, i32 4, i32 0, i32 0)
  %at = getelementptr <2 x i32>, ptr addrspace(1) %out, i32 %lane
  store <2 x i32> %x, ptr addrspace(1) %at
  ret void
}

define amdgpu_cs void @scalar(<4 x i32> inreg %r, ptr addrspace(1) inreg %out, i32 inreg %offset) {
  %x = call <2 x i32> @llvm.amdgcn.s.buffer.load.v2i32(<4 x i32> %r, i32 %offset, i32 0)
  store <2 x i32> %x, ptr addrspace(1) %out
  ret void
}

define amdgpu_cs void @count(ptr addrspace(1) inreg %out, i32 %lane) {
  store i32 50, ptr addrspace(3) @lds
  fence syncscope("workgroup") seq_cst
  %low = icmp ult i32 %lane, 11
  br i1 %low, label %some, label %done
some:
  %more = call i32 @llvm.amdgcn.ds.append.p3(ptr addrspace(3) @lds, i1 false)
  %less = call i32 @llvm.amdgcn.ds.consume.p3(ptr addrspace(3) @lds, i1 false)
  %both = mul i32 %less, 1000
  %sum = add i32 %both, %more
  %at = getelementptr i32, ptr addrspace(1) %out, i32 %lane
  store i32 %sum, ptr addrspace(1) %at
  br label %done
done:
  ret void
}

define amdgpu_cs void @transposed(ptr addrspace(1) inreg %in, ptr addrspace(1) inreg %out, i32 %lane) {
  %row = getelementptr <8 x i16>, ptr addrspace(1) %in, i32 %lane
  %x = call <8 x i16> @llvm.amdgcn.global.load.tr.b128.v8i16(ptr addrspace(1) %row)
  %at = getelementptr <8 x i16>, ptr addrspace(1) %out, i32 %lane
  store <8 x i16> %x, ptr addrspace(1) %at
  ret void
}
"""
KERNELS = ("generic", "raw", "records", "scalar", "count", "transposed")


@cache
def image() -> Image:
    return images([Module("memory", IR, TARGETS["gfx1201"], KERNELS)])[0]


def launch(stage: Stage, name: str, *words: int, scratch: int = 0) -> list[str]:
    """One wave; the names of the instructions that it executed."""
    made = image()
    start, config = made.entries[name], made.meta["config"][name]
    code = made.code[start : start + made.meta["sizes"][name]]
    stage.dispatch(
        stage.code(bytes(code)), user_data=words, rsrc1=config["COMPUTE_PGM_RSRC1"], lds=512, scratch=scratch
    )
    return list(stage.core.counters[-1].names)


def words_of(*numbers: int) -> list[int]:
    """64-bit numbers."""
    return [n >> s & 0xFFFFFFFF for n in numbers for s in (0, 32)]


def descriptor(*args: int, **how: int) -> list[int]:
    found = resource(*args, **how)
    return words_of(found & (1 << 64) - 1, found >> 64)


LANE = np.arange(32)


def test_generic_pointers() -> None:
    stage = Stage()
    out = stage.buffer(512)
    names = launch(stage, "generic", *words_of(out), scratch=2048)
    assert {"flat_store_b32", "flat_atomic_add_u32", "flat_load_b32"} <= set(names)
    assert (stage.read(out + 256, np.uint32, 32) == 14 * LANE + 1000).all()
    direct = stage.read(out, np.uint32, 32)
    assert (direct == np.where(LANE % 3 == 2, 7 * LANE + 1000, 0)).all()


def test_buffers() -> None:
    stage = Stage()
    x = stage.buffer(np.arange(1, 65, dtype=np.uint32))
    y = stage.buffer(512)
    names = launch(stage, "raw", *descriptor(x, 40, check=RAW), *descriptor(y, 512, check=RAW))
    assert {"buffer_load_b32", "buffer_store_b32", "buffer_atomic_add_u32"} <= set(names)
    assert (stage.read(y + 128, np.uint32, 32) == np.where(LANE < 10, LANE + 1, 0)).all()
    assert stage.read(y, np.uint32, 1)[0] == 160
    names = launch(stage, "records", *descriptor(x, 5, stride=12, check=STRUCTURED_WITH_OFFSET), *words_of(y))
    assert "buffer_load_b64" in names
    found = stage.read(y, np.uint32, 64).reshape(32, 2)
    assert (found == np.where(LANE[:, None] < 5, 3 * LANE[:, None] + np.array([2, 3]), 0)).all()


def test_scalar_loads_of_buffers() -> None:
    stage = Stage()
    x, y = stage.buffer(np.arange(1, 65, dtype=np.uint32)), stage.buffer(512)
    for offset, want in ((8, [3, 4]), (36, [10, 0]), (40, [0, 0])):
        names = launch(stage, "scalar", *descriptor(x, 40), *words_of(y), offset)
        assert "s_buffer_load_b64" in names
        assert stage.read(y, np.uint32, 2).tolist() == want


def test_append_and_consume() -> None:
    stage = Stage()
    out = stage.buffer(512)
    assert {"ds_append", "ds_consume"} <= set(launch(stage, "count", *words_of(out)))
    assert (stage.read(out, np.uint32, 32) == np.where(LANE < 11, 61_050, 0)).all()


def test_a_transposing_load() -> None:
    stage = Stage()
    x, y = stage.buffer(np.arange(256, dtype=np.uint16)), stage.buffer(512)
    assert "global_load_tr_b128" in launch(stage, "transposed", *words_of(x, y))
    tiles = np.arange(256).reshape(4, 8, 8)
    assert (stage.read(y, np.uint16, 256).reshape(4, 8, 8) == tiles.transpose(0, 2, 1)).all()
