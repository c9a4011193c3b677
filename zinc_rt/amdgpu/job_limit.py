"""How long the kernel lets a submission run before it takes the GPU for hung and resets it.

`lockup_timeout`, a parameter of the module, is empty by default, or milliseconds: one number, or one for each kind of
queue, as "graphics,compute,copies,video". 0 means the default, a negative number no limit. One number alone did not
concern compute queues in older kernels. The default was a minute for them, ten seconds from about 6.16 on, and is two
seconds for all queues since 6.18 or soon after; where it is not certain the shorter time is assumed.
Source: `amdgpu_device_get_job_timeout_settings` of the kernel's versions.
"""

from __future__ import annotations

import math
import re

from zinc_rt.utils.linux import Linux

PARAMETER = "/sys/module/amdgpu/parameters/lockup_timeout"
_COMPUTE = 1
"""Place of compute queues among four values."""
_SHORT, _LONG = 2.0, 10.0
_SHORT_SINCE = (6, 18)


def job_limit(linux: Linux) -> float:
    """Seconds that a compute job may take on this system; infinite where the kernel does not look. Never raises."""
    try:
        text = linux.read_text(PARAMETER)
    except OSError:
        text = ""
    return parsed_limit(text, linux.kernel_release())


def parsed_limit(text: str, release: str) -> float:
    """The same from the parameter's text and a release as `uname -r` prints it. What cannot be read counts as empty."""
    default = default_limit(release)
    values = [_milliseconds(part) for part in text.strip().split(",")]
    value = values[0] if len(values) == 1 else values[_COMPUTE]
    if not value:
        return default
    found = math.inf if value < 0 else value / 1000
    # One number alone: whether it concerns compute queues depends on the version, so the default may still hold.
    return min(found, default) if len(values) == 1 else found


def default_limit(release: str) -> float:
    """Seconds where the parameter says nothing."""
    version = re.match(r"(\d+)\.(\d+)", release)
    old = version is not None and (int(version[1]), int(version[2])) < _SHORT_SINCE
    return _LONG if old else _SHORT


def _milliseconds(text: str) -> int:
    """A number as the kernel reads it, decimal or with 0x; 0 for anything else."""
    try:
        return int(text.strip(), 0)
    except ValueError:
        return 0
