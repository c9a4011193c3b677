"""`zinc serve` on a Ray cluster: `application` gives Ray Serve replicas of a server behind one address.

Ray comes with the extra `ray`; nothing else in the package imports it.
"""

from __future__ import annotations

from zinc_rt.ray.settings import Settings
from zinc_rt.ray.start import application

__all__ = ["Settings", "application"]
