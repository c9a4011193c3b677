"""The messages between the front and replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zinc_rt.serving.api.call import Scope
from zinc_rt.serving.api.errors import Headers


@dataclass(frozen=True, slots=True)
class Passed:
    """One HTTP request.

    key: of its prefix, by which a replica is chosen. avoid: replicas that are tried last.
    """

    method: str
    path: str
    query: bytes
    headers: Headers
    body: bytes
    key: bytes
    avoid: tuple[str, ...] = ()

    def scope(self) -> dict[str, Any]:
        """It as ASGI has it."""
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "scheme": "http",
            "root_path": "",
            "method": self.method,
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": self.query,
            "headers": self.headers,
        }


@dataclass(frozen=True, slots=True)
class Taken:
    """The first a replica says of a request, before it answers: its name."""

    replica: str


def path_of(scope: Scope) -> str:
    """The path of a request below the prefix that the application has on Ray Serve."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path.removeprefix(root) or "/"
