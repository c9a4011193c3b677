"""The emulated sysfs and the device files: what programs read before they open anything."""

from amdgpu_emu.sysfs.tree import SysFs

__all__ = ("SysFs",)
