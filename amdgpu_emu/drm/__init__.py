"""The emulated amdgpu DRM driver: a render node's ioctls, checked in the order and with the errno of the kernel's own.

`file` finds the handler of a request. Per open file: `gem`, `gem_ops` (buffers), `va` (addresses on the GPU),
`contexts`, `bo_lists`, `syncobj`, `syncobj_ioctls`, `prime`, `userq`, `userq_fences`, `info`, `device_info`, `core`.
A submission goes through `chunks` (read and check), `submission` (CS), `jobs` (what it may touch) and `rings` (its
turn, its end); `fences` and `waits` are for waiting, `reset` for what hangs. `device` is what a GPU has once.
"""
