"""`application`: from settings to what Ray Serve runs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from zinc_rt.errors import UsageError
from zinc_rt.ray.settings import read_settings

if TYPE_CHECKING:
    from ray.serve import Application


def application(settings: Mapping[str, Any]) -> Application:
    """A Ray Serve application: `serve.run(application({"model": FILE, "max_replicas": 4}))`, or on a command line
    `serve run zinc_rt.ray:application model=FILE max_replicas=4`.

    Args:
        settings: fields of `Settings`; numbers may be texts, as command lines have them.

    Raises:
        UsageError: a field is unknown, or its value cannot be used; Ray Serve is not installed.
    """
    found = read_settings(settings)
    if find_spec("ray") is None or find_spec("ray.serve") is None:
        raise UsageError("Ray Serve is not installed; pip install 'zinc-rt[ray]'")
    from zinc_rt.ray.deploy import deploy

    return deploy(found)
