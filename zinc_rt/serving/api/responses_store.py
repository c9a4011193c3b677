"""Responses that are kept: later responses continue them, and clients read and delete them by id. In memory, each
tenant's apart.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from zinc_rt.serving.api.errors import ApiError
from zinc_rt.serving.api.ids import new_id

STORE_BYTES: Final = 64 << 20
"""Bytes of JSON that the responses of all tenants may have."""


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """A response and the items of its input, all that it went on from included; both as JSON."""

    body: bytes
    items: bytes

    @property
    def size(self) -> int:
        """Bytes that count."""
        return len(self.body) + len(self.items)

    def conversation(self) -> list[dict[str, Any]]:
        """The items of its input and of its output."""
        items: list[dict[str, Any]] = msgspec.json.decode(self.items)
        return [*items, *self.output()]

    def output(self) -> list[dict[str, Any]]:
        """The items of its output."""
        items: list[dict[str, Any]] = msgspec.json.decode(self.body)["output"]
        return items


class ResponseStore:
    """Kept responses. If they are too many, the tenant that holds most loses its oldest one. limit: bytes."""

    def __init__(self, limit: int = STORE_BYTES) -> None:
        self._limit = limit
        self._kept: defaultdict[str, OrderedDict[str, KeptResponse]] = defaultdict(OrderedDict)
        self._sizes: defaultdict[str, int] = defaultdict(int)

    def keep(self, tenant: str, response: dict[str, Any], items: list[dict[str, Any]]) -> None:
        """Keep a response. items: of its input; those without an id get one."""
        named = [item if item.get("id") else {**item, "id": new_id("msg_")} for item in items]
        made = KeptResponse(msgspec.json.encode(response), msgspec.json.encode(named))
        self.drop(tenant, response["id"])  # a stream that was resumed ends twice
        self._kept[tenant][response["id"]] = made
        self._sizes[tenant] += made.size
        while sum(self._sizes.values()) > self._limit:
            most = max(self._sizes, key=self._sizes.__getitem__)
            self.drop(most, next(iter(self._kept[most])))

    def get(self, tenant: str, response_id: str) -> KeptResponse | None:
        """A response of a tenant; None where there is none."""
        return self._kept[tenant].get(response_id) if tenant in self._kept else None

    def find(self, tenant: str, response_id: str) -> KeptResponse:
        """A response of a tenant. Raises `ApiError`, 404."""
        if (kept := self.get(tenant, response_id)) is None:
            raise _unknown(response_id)
        return kept

    def item(self, tenant: str, item_id: str) -> dict[str, Any] | None:
        """An item of a response's output by its id, which has the response's in it."""
        kept = self.get(tenant, f"resp_{item_id.partition('_')[2][:24]}")
        return next((item for item in kept.output() if item["id"] == item_id), None) if kept else None

    def drop(self, tenant: str, response_id: str) -> bool:
        """Forget a response; whether there was one."""
        if (kept := self.get(tenant, response_id)) is None:
            return False
        del self._kept[tenant][response_id]
        self._sizes[tenant] -= kept.size
        if not self._kept[tenant]:
            del self._kept[tenant], self._sizes[tenant]
        return True


def _unknown(response_id: str) -> ApiError:
    message = f"no response {response_id[:60]!r} is kept: it was not stored, was deleted, or others took its place"
    return ApiError(404, message, param="response_id", code="response_not_found")
