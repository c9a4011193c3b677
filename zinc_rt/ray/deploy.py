"""The two deployments of an application: replicas that compute, and the front that passes requests to them."""

from __future__ import annotations

from typing import Any, Final

from ray import serve
from ray.serve.config import AutoscalingConfig, RequestRouterConfig

from zinc_rt.ray.front import Front
from zinc_rt.ray.replica import Replica
from zinc_rt.ray.settings import Settings

REPLICA: Final = "ZincReplica"
FRONT: Final = "ZincFront"
_OPEN: Final = 4096
"""Requests that a process may have: the servers' own limits are lower, and say so to the client."""


def deploy(settings: Settings) -> serve.Application:
    """The application; Ray Serve starts it with `serve.run`."""
    scaling = AutoscalingConfig(
        min_replicas=settings.min_replicas,
        max_replicas=settings.max_replicas,
        initial_replicas=settings.min_replicas,
        target_ongoing_requests=settings.parallel,
        upscale_delay_s=settings.upscale_delay,
        downscale_delay_s=settings.downscale_delay,
    )
    routing = RequestRouterConfig(
        request_router_class="zinc_rt.ray.affinity:PrefixRouter", request_router_kwargs={"more": settings.parallel}
    )
    more: dict[str, Any] = {} if settings.per_machine is None else {"max_replicas_per_node": settings.per_machine}
    replicas = serve.deployment(
        Replica,
        name=REPLICA,
        autoscaling_config=scaling,
        request_router_config=routing,
        ray_actor_options={"num_cpus": settings.cpus, "num_gpus": settings.gpus},
        max_ongoing_requests=_OPEN,
        graceful_shutdown_timeout_s=settings.drain,
        health_check_period_s=5.0,
        **more,
    )
    front = serve.deployment(
        Front,
        name=FRONT,
        num_replicas=settings.fronts,
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=_OPEN,
        graceful_shutdown_timeout_s=settings.drain + 5,
    )
    return front.bind(replicas.bind(settings), settings)
