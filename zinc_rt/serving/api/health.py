"""Health, metrics, and what is known of single requests."""

from __future__ import annotations

import zinc_rt
from zinc_rt.scheduler.messages import CancelReason
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.errors import ApiError, cancelled
from zinc_rt.serving.api.metrics import TYPE, labelled_text
from zinc_rt.serving.api.model_table import HostedModel, table_of
from zinc_rt.serving.api.service import Service


async def health(service: Service, call: Call) -> None:
    """200 while requests are answered; 503 while loading, draining, restarting, without progress, or with a fault."""
    state = unhealthy(service)
    facts: dict[str, object] = {"status": state or "ok"}
    if (table := table_of(service)) is not None:
        facts["models"] = {one.name: _state(one) for one in table.models}
    await call.reply_json(facts, 200 if state is None else 503)


def _state(hosted: HostedModel) -> str:
    """The state of one of several models; one that fails does not make the others unhealthy."""
    return hosted.state if hosted.service is None else unhealthy(hosted.service) or hosted.state


def unhealthy(service: Service) -> str | None:
    """Why requests are not answered, or None."""
    state = "draining" if service.draining else service.loading or service.background.wrong
    if service.table is not None:
        return state
    state = state or service.client.healthy
    return "stuck" if state is None and service.stuck() else state


async def live(service: Service, call: Call) -> None:
    """200 while the process answers at all."""
    await call.reply_json({"status": "ok"})


async def ready(service: Service, call: Call) -> None:
    """200 if a request would be taken now."""
    no = service.unready()
    if no is not None:
        raise no
    await call.reply_json({"status": "ok"})


async def version(service: Service, call: Call) -> None:
    """The server's release."""
    await call.reply_json({"version": zinc_rt.__version__})


async def progress(service: Service, call: Call) -> None:
    """How the engines get on; without a key only what a router needs to choose among servers."""
    facts = {
        "fingerprint": service.model.fingerprint if service.table is None else service.table.fingerprint,
        "requests": sum(one.admission.inside for one in service.engines),
        "keyless": service.keys is None,
    }
    if service.knows(call):
        now = [one.client.status for one in service.engines]
        facts |= {
            "steps": sum(one.steps for one in now),
            "step_age_seconds": round(min((one.step_age() for one in service.engines), default=0.0), 3),
            "running": sum(one.prefilling + one.decoding for one in now),
            "queued": sum(one.queued for one in now),
            "slots": sum(one.n_slots for one in now),
        }
    await call.reply_json(facts)


async def metrics(service: Service, call: Call) -> None:
    """All metrics, for administrators."""
    service.check_admin(call)
    vllm = service.config.vllm_names or service.tenants.vllm_names
    if (table := table_of(service)) is not None:
        of_models = {one.name: one.metrics.registry for one in table.models}
        await call.reply(labelled_text({"": service.metrics.registry, **of_models}), kind=TYPE)
        return
    await call.reply(service.metrics.text(service.model.name if vllm else None), kind=TYPE)


def _id(service: Service, call: Call) -> str:
    return call.path.rpartition("/")[2]


async def show_request(service: Service, call: Call) -> None:
    """What is known of a request that runs or ended lately, for its tenant and for administrators."""
    name = _id(service, call)
    running = service.running.get(name)
    if running is not None and service.may_see(call, running.tenant):
        facts = {
            "id": name,
            "tenant": running.tenant,
            "endpoint": running.endpoint,
            "phase": running.phase,
            "queue_seconds": max((a.queue_seconds for a in running.choices), default=0.0),
            "cached_tokens": max((a.cached for a in running.choices), default=0),
            "completion_tokens": sum(a.n_tokens for a in running.choices),
        }
        await call.reply_json(facts)
        return
    ended_facts = service.recent.get(name)
    if ended_facts is None or not service.may_see(call, ended_facts["tenant"]):
        raise _unknown(name)
    shown = {key: value for key, value in ended_facts.items() if key != "prompt"}
    await call.reply_json({**shown, "phase": "finished"})


async def cancel_request(service: Service, call: Call) -> None:
    """End a request that runs; its client gets an error."""
    name = _id(service, call)
    running = service.running.get(name)
    if running is None or not service.may_see(call, running.tenant):
        raise _unknown(name)
    running.abort(cancelled(CancelReason.caller))
    await call.reply_json({"id": name, "object": "request", "cancelled": True})


def _unknown(name: str) -> ApiError:
    return ApiError(404, f"no request {name[:60]!r} runs or ended lately", code="request_not_found")
