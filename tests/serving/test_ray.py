"""Two replicas on a Ray of this machine: streams, affinity, clients that leave, a replica that is killed, scaling.

Ray is not in the extra for tests: `pip install 'zinc-rt[ray,test]'`, then `pytest -m slow tests/serving/test_ray.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

import zinc_rt
from zinc_rt.ray import application

ray = pytest.importorskip("ray")
serve = pytest.importorskip("ray.serve")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

COMPLETIONS = "/v1/completions"
LONG = 400


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where Ray Serve listens; nothing is deployed yet."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=2, object_store_memory=100 << 20, include_dashboard=False, log_to_driver=False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        yield f"http://127.0.0.1:{port}"
    finally:
        serve.shutdown()
        ray.shutdown()


@pytest.fixture(scope="module")
def two(address: str) -> str:
    """The address of two replicas of the model in the package."""
    settings = {"min_replicas": 2, "max_replicas": 2, "parallel": 4, "cpus": 0.5}
    serve.run(application(settings), name="two")
    return address


@pytest.fixture(scope="module")
def model() -> Iterator[zinc_rt.Model]:
    """The same model in this process."""
    with zinc_rt.load() as model:
        yield model


def body(prompt: str, tokens: int = 40, **fields: Any) -> dict[str, Any]:
    """A completion, drawn with a seed."""
    return {"prompt": prompt, "max_tokens": tokens, "seed": 7, "temperature": 0.8, "ignore_eos": True, **fields}


def direct(model: zinc_rt.Model, prompt: str, tokens: int = 40) -> str:
    """What a completion must say."""
    return model.generate(prompt, max_tokens=tokens, seed=7, temperature=0.8, ignore_eos=True).text


class Streamed:
    """A stream, read to its end: its text, the replica that began it, its last words, and how it came."""

    def __init__(
        self, http: httpx.Client, prompt: str, tokens: int = 40, begun: Callable[[], None] | None = None
    ) -> None:
        """begun: is called once the stream has begun."""
        self.id, self.text, self.chunks, self.error, self.done = "", "", 0, None, False
        with http.stream("POST", COMPLETIONS, json=body(prompt, tokens, stream=True)) as answer:
            assert answer.status_code == 200, answer.read()
            self.replica: str = answer.headers["x-zinc-replica"]
            rest = b""
            for data in answer.iter_raw():
                self.chunks += 1
                if begun is not None and self.chunks == 1:
                    begun()
                *events, rest = (rest + data).split(b"\n\n")
                for event in events:
                    self._event(event)
            assert rest == b""

    def _event(self, event: bytes) -> None:
        said = next((line[6:] for line in event.split(b"\n") if line.startswith(b"data: ")), b"")
        if said == b"[DONE]":
            self.done = True
        elif said:
            found = json.loads(said)
            self.id = found.get("id", self.id)
            self.error = found.get("error")
            self.text += "".join(choice["text"] for choice in found.get("choices", []))


def client(address: str) -> httpx.Client:
    """A client."""
    return httpx.Client(base_url=address, timeout=120)


def pid_of(replica: str) -> int:
    """A replica's process."""
    actor = ray.get_actor(f"SERVE_REPLICA::two#ZincReplica#{replica}", namespace="serve")
    return int(ray.get(actor.__ray_call__.remote(lambda _: os.getpid())))


def running(app: str) -> int:
    """Replicas that Ray calls running."""
    states = serve.status().applications[app].deployments["ZincReplica"].replica_states
    return int(states.get("RUNNING", 0))


def until(true: Any, seconds: float = 120) -> None:
    """Wait for what is bound to come."""
    last = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < last
        time.sleep(0.2)


def test_streams_are_the_direct_answers_event_by_event(two: str, model: zinc_rt.Model) -> None:
    prompts = [f"{name} went" for name in ("Tim", "Lily", "Ben", "Anna", "Max", "Sue", "Tom", "Mia")]
    with client(two) as http, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda prompt: Streamed(http, prompt), prompts))
    assert [stream.text for stream in found] == [direct(model, prompt) for prompt in prompts]
    assert all(stream.done for stream in found)
    assert min(stream.chunks for stream in found) > 10  # of 40 tokens; load may join some
    assert len({stream.replica for stream in found}) == 2


def test_a_prefix_has_one_replica(two: str) -> None:
    begin = "Once upon a time there was a boy. " * 20  # more than what the key is made of
    with client(two) as http:

        def replica(prompt: str) -> str:
            answer = http.post(COMPLETIONS, json=body(prompt, 1))
            assert answer.status_code == 200, answer.text
            return answer.headers["x-zinc-replica"]

        for n in range(6):
            assert len({replica(f"{n} {begin} {end}") for end in ("He ran.", "She sat.", "They ate.")}) == 1
        again = http.post(COMPLETIONS, json=body(f"0 {begin} He ran.", 1))
        assert again.json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 100


def test_a_client_that_leaves_ends_its_request(two: str) -> None:
    async def go() -> str:
        sent = body("Tom left", LONG, stream=True)
        async with httpx.AsyncClient(base_url=two) as http, http.stream("POST", COMPLETIONS, json=sent) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    return str(json.loads(line[6:])["id"])
        raise AssertionError

    name = asyncio.run(go())
    with client(two) as http:
        until(lambda: http.get(f"/v1/zinc/requests/{name}").json()["phase"] == "finished")
        facts = http.get(f"/v1/zinc/requests/{name}").json()
    assert facts["outcome"] == "client_gone"
    assert facts["completion_tokens"] < LONG


def test_a_killed_replica_is_replaced_and_others_answer(two: str, model: zinc_rt.Model) -> None:
    prompts = [f"{n} birds sang" for n in range(12)]
    with client(two) as http, ThreadPoolExecutor(8) as pool:
        homes = {prompt: Streamed(http, prompt, 1).replica for prompt in prompts}
        victim = homes[prompts[0]]
        others = [prompt for prompt in prompts if homes[prompt] != victim]
        assert others
        whole = pool.submit(lambda: http.post(COMPLETIONS, json=body(prompts[0], LONG)).json())
        beside = [pool.submit(Streamed, http, prompt, LONG) for prompt in others[:3]]
        pid = pid_of(victim)
        broken = Streamed(http, prompts[0], LONG, begun=lambda: os.kill(pid, signal.SIGKILL))
        after = Streamed(http, prompts[0])
        assert broken.replica == victim
        assert broken.error is None
        assert (broken.text, broken.done) == (direct(model, prompts[0], LONG), True)
        assert http.get(f"/v1/zinc/requests/{broken.id}").json()["phase"] == "finished"  # by the one that is left
        assert (after.text, after.done) == (direct(model, prompts[0]), True)
        assert after.replica != victim
        assert whole.result()["choices"][0]["text"] == direct(model, prompts[0], LONG)
        for prompt, stream in zip(others, beside, strict=False):
            assert (stream.result().text, stream.result().done) == (direct(model, prompt, LONG), True)

        def both_answer() -> bool:
            found = {Streamed(http, f"{n} cats", 1).replica for n in range(12)}
            assert victim not in found
            return len(found) == 2

        until(both_answer)
        assert running("two") == 2


def test_replicas_are_added_under_load_and_streams_outlive_the_application(two: str, model: zinc_rt.Model) -> None:
    settings = {"max_replicas": 2, "parallel": 1, "cpus": 0.5, "upscale_delay": 0, "drain": 30}
    serve.run(application(settings), name="more", route_prefix="/more")
    assert running("more") == 1
    with client(f"{two}/more") as http, ThreadPoolExecutor(4) as pool:
        over = False

        def load(n: int) -> set[str]:
            found = set()
            while not over:
                found.add(Streamed(http, f"{n} dogs", 100).replica)
            return found

        try:
            loads = [pool.submit(load, n) for n in range(3)]
            until(lambda: running("more") == 2)
        finally:
            over = True
        assert all(task.result() for task in loads)
        last = Streamed(http, "The end", LONG, begun=lambda: serve.delete("more", _blocking=False))
    assert (last.text, last.done) == (direct(model, "The end", LONG), True)
    until(lambda: "more" not in serve.status().applications)
