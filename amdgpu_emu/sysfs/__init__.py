"""The emulated sysfs and device files, which programs read before they open a device."""

from amdgpu_emu.sysfs.tree import SysFs

__all__ = ("SysFs",)
