"""The emulated sysfs and the device files: what programs read before they open anything."""

from zinc_rt.emu.sysfs.tree import SysFs

__all__ = ("SysFs",)
