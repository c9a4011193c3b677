"""`PrefixRouter`: Ray Serve's choice of a replica, by the prefix of a request and by what the replicas have to do."""

from __future__ import annotations

from typing import Any

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from zinc_rt.ray.passed import Passed
from zinc_rt.serving.route.ranking import MORE, ranked


class PrefixRouter(RequestRouter):
    """Ranks all replicas, and always returns all of them: if Ray gets none, it asks again and again.

    Ray takes the first one that has room, waits between rounds, and skips replicas that do not answer.
    """

    _more = MORE

    def initialize_state(self, **kwargs: Any) -> None:
        """more: requests by which a replica may exceed the least busy one before it is passed over."""
        self._more = int(kwargs.get("more", MORE))

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Ranks of one replica each, the one to try first in front."""
        if pending_request is None:
            return [candidate_replicas]
        pending_request.routing_context.should_backoff = True  # otherwise Ray asks again without a pause
        passed = pending_request.args[0] if pending_request.args else None
        if not isinstance(passed, Passed):
            return [candidate_replicas]
        named = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        queues = self.replica_queue_len_cache
        loads = {name: queues.get(replica.replica_id) or 0 for name, replica in named.items()}
        names = sorted(ranked(passed.key, loads, self._more), key=lambda name: name in passed.avoid)
        return [[named[name]] for name in names]
