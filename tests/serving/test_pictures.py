"""Pictures in requests, with a tiny projector for the model in the package: the same bytes however the server runs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving.command import Command, started
from tests.serving.pictures import data_url, part, picture, write_projector
from tests.serving.real import SECONDS, Ask, Real, real, tokens_in
from tests.serving.test_sameness import asks
from tests.vision import towers
from zinc_rt.cli.main import main
from zinc_rt.gguf import GGUFFile
from zinc_rt.llm.load import built_in_model
from zinc_rt.models import define
from zinc_rt.models.errors import ModelError
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.scheduler.messages import StepReport, Submit
from zinc_rt.serving.api import recording
from zinc_rt.serving.api.config import ServerConfig
from zinc_rt.serving.api.limits import Limits
from zinc_rt.serving.api.start import EngineChoice, make_service
from zinc_rt.serving.load_engine import open_core
from zinc_rt.serving.records.store import UnknownRecord
from zinc_rt.vision.projector import with_projector
from zinc_rt.vision.shown import PictureReader

N_CTX = 512


@pytest.fixture(scope="session")
def mmproj(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_projector(tmp_path_factory.mktemp("projector"))


def chat(text: str, *pictures: bytes, **fields: Any) -> Ask:
    content = [*(part(data_url(data), detail="low") for data in pictures), {"type": "text", "text": text}]
    body = {"messages": [{"role": "user", "content": content}], "seed": 7, "temperature": 1.0, "max_tokens": 24}
    return Ask("/v1/chat/completions", {**body, "ignore_eos": True, **fields})


def picture_asks() -> list[Ask]:
    """One picture in several questions, another one, two of them, a large one, several answers."""
    return [
        chat("See", picture()),
        chat("What is it?", picture(), logprobs=True),
        chat("See", picture(2)),
        chat("Compare", picture(2), picture(3, 70, 20), max_tokens=40),
        chat("See", picture(4, 150, 130), n=2),
    ]


@cache
def alone(mmproj: Path) -> list[bytes]:
    """Each request by itself: one slot, nothing cached, one process."""

    async def go() -> list[bytes]:
        async with real(mmproj=mmproj, cold=True, n_slots=1, n_ctx=N_CTX) as server:
            return [await server.say(ask) for ask in picture_asks()]

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, go()).result()


def same(mmproj: Path, check: Callable[[Real], Awaitable[None]] | None = None, times: int = 1, **options: Any) -> None:
    """Ask all at once, beside requests without pictures, so often, and compare with each alone."""

    async def go() -> None:
        async with real(mmproj=mmproj, n_ctx=N_CTX, **options) as server:
            for _ in range(times):
                found = await server.storm([*picture_asks(), *asks(3)])
                for i, (one, other) in enumerate(zip(found, alone(mmproj), strict=False)):
                    assert one == other, i
                await server.settled()
            if check is not None:
                await check(server)

    asyncio.run(go())


def test_a_picture_changes_the_answer(mmproj: Path) -> None:
    said = alone(mmproj)
    assert len(set(said)) == len(said)


def test_a_storm_twice_and_on_few_pages(mmproj: Path) -> None:
    async def reused(server: Real) -> None:
        assert await server.metric('zinc_prefix_tokens_total{result="hit"}') > 0

    same(mmproj, reused, times=2, n_slots=8, kv_tokens=256)


@pytest.mark.slow  # `test_process.py` kills engines, the tests below have pictures
def test_an_engine_that_is_killed(mmproj: Path) -> None:
    """The next one gets the pictures again."""
    killed: list[int] = []

    async def go() -> None:
        expected = alone(mmproj)
        tokens = 0
        server: Real

        def count(report: StepReport) -> None:
            nonlocal tokens
            tokens += tokens_in(report)
            if tokens > 20 * (len(killed) + 1) and len(killed) < 2:
                killed.append(server.engine.pid or 0)
                os.kill(killed[-1], signal.SIGKILL)

        async with real(mmproj=mmproj, process=True, n_ctx=N_CTX, report=count) as server:
            found = await server.storm(picture_asks())
        assert found == expected

    asyncio.run(go())
    assert len(killed) == 2


def test_the_next_question_finds_the_picture_in_the_cache(mmproj: Path) -> None:
    """As a whole answer, and in a conversation that goes on."""

    async def go() -> None:
        async with real(mmproj=mmproj, n_ctx=N_CTX) as server:
            first = await server.http.post("/v1/chat/completions", json=chat("See", picture(5, 90, 90)).body)
            usage = first.json()["usage"]
            content = [part(data_url(picture(5, 90, 90))), {"type": "text", "text": "See"}]
            talk = [
                {"role": "user", "content": content},
                {"role": "assistant", "content": first.json()["choices"][0]["message"]["content"]},
                {"role": "user", "content": "And then?"},
            ]
            second = await server.http.post("/v1/chat/completions", json=chat("", messages=talk).body)
            cached = second.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
            assert usage["prompt_tokens"] > 121  # 11 lines of 11 blocks at least
            assert cached >= usage["prompt_tokens"] - 1
            other = await server.http.post("/v1/chat/completions", json=chat("See", picture(6, 90, 90)).body)
            assert other.json()["usage"]["prompt_tokens_details"]["cached_tokens"] < 16
            assert other.json()["usage"]["prompt_tokens"] == usage["prompt_tokens"]

    asyncio.run(go())


def test_whole_and_streamed_answers_are_the_same(mmproj: Path) -> None:
    async def go() -> None:
        async with real(mmproj=mmproj, n_ctx=N_CTX) as server:
            ask = chat("See", picture())
            whole = await server.http.post(ask.path, json=ask.body)
            text = whole.json()["choices"][0]["message"]["content"]
            lines = (await server.http.post(ask.path, content=ask.json)).text.splitlines()
            events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
            assert "".join(e["choices"][0]["delta"].get("content", "") for e in events if e["choices"]) == text

    asyncio.run(go())


def test_a_replay_has_the_pictures(mmproj: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the engine that serves, from the file of records, and not with another projector."""
    records = tmp_path / "records.sqlite"
    ids: list[str] = []

    async def go() -> None:
        async with real(mmproj=mmproj, n_ctx=N_CTX, records=records) as server:
            for ask in picture_asks()[:2]:
                answer = await server.http.post(ask.path, json=ask.body)
                ids.append(answer.headers["x-request-id"])
            recorder = server.service.recorder
            assert recorder is not None
            await server.until(lambda: recorder.identity is not None)
            for name in ids:
                replay = {"object": "replay", "id": name, "equal": True, "tokens": 24, "difference": None}
                for _ in range(100):
                    found = await server.http.post("/v1/zinc/replay", json={"id": name})
                    if found.status_code == 200:
                        break
                    await asyncio.sleep(0.05)  # until it is written
                assert found.json() == replay
                assert (await server.http.get(f"/v1/zinc/receipts/{name}")).status_code == 200

    asyncio.run(go())
    command = ["replay", ids[0], "--records", str(records), "--device", "cpu", "--mmproj"]
    assert main([*command, str(mmproj)]) == 0
    assert capsys.readouterr().out == "equal: 24 tokens\n"
    other = towers.write(tmp_path / "mmproj-other.gguf", "idefics3", n_out=192).path
    assert main([*command, str(other)]) == 1
    assert "has pictures, which another projector read" in capsys.readouterr().err
    assert main(command[:-1]) == 1
    assert "give --mmproj" in capsys.readouterr().err


def test_an_engine_says_whose_picture_it_works_on(mmproj: Path) -> None:
    """Before that work, which may end its process; and the work counts as progress."""
    with GGUFFile.open(built_in_model()) as file, GGUFFile.open(mmproj) as shown_file:
        reader = PictureReader(with_projector(define(file), file, shown_file)[0], b"one")
    shown = reader.read(picture()).shown
    core = open_core(None, mmproj=str(mmproj), device="cpu", threads=2, n_ctx=N_CTX)
    try:
        told: list[tuple[tuple[str, ...], int]] = []
        core.at_work = lambda ids: told.append((ids, core.status.encoded))
        prompt = (1, *shown.placed.ids(0, shown.placed.n_rows), 2)
        core.submit(Submit("r", prompt, SamplingParams(max_tokens=2), 7, pictures=(shown,)))
        while not core.idle:
            core.turn()
        assert told[0] == (("r",), 0)
        assert core.status.encoded > 0
    finally:
        core.close()


def test_a_request_with_many_pixels_has_a_receipt_alone(
    mmproj: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MAX_PICTURE_BYTES", 4000)

    async def go() -> None:
        async with real(mmproj=mmproj, n_ctx=N_CTX, records=tmp_path / "records.sqlite") as server:
            small, large = chat("See", picture(1, 34, 34)), chat("See", picture())
            names = []
            for ask in (small, large):
                names.append((await server.http.post(ask.path, json=ask.body)).headers["x-request-id"])
            recorder = server.service.recorder
            assert recorder is not None
            await server.until(lambda: recorder.identity is not None)
            found = []
            for name in names:
                await server.until(lambda name=name: _kept(recorder, name))  # type: ignore[misc]
                found.append(recorder.records.store.full_record(name))
            assert found[0] is not None
            assert found[1] is None
            (told,) = [line for line in server.log if line["event"] == "receipt alone"]
            assert told["id"] == names[1]

    asyncio.run(go())


def _kept(recorder: recording.RequestRecorder, name: str) -> bool:
    try:
        recorder.records.store.receipt(name)
    except UnknownRecord:
        return False
    return True


def test_servers_with_copies_of_a_projector_make_the_same_prompts(mmproj: Path, tmp_path: Path) -> None:
    """Another machine goes on with a stream, and the ids of calls depend on the prompt."""
    copy = tmp_path / "mmproj-copy.gguf"
    copy.write_bytes(mmproj.read_bytes())
    other = towers.write(tmp_path / "mmproj-other.gguf", "idefics3", n_out=192).path
    shown, prints = [], []
    for path in (mmproj, copy, other):
        choice = EngineChoice(options={"mmproj": str(path), "device": "cpu"})
        service = make_service(ServerConfig(), choice)
        pictures = service.model.pictures
        assert pictures is not None
        content = [part(data_url(picture()))]
        (message,) = asyncio.run(pictures.show([{"role": "user", "content": content}], Limits()))
        shown.append(message["content"][0].picture.shown.placed)
        prints.append(service.fingerprint)
        service.model.close()
    assert shown[0] == shown[1] != shown[2]
    assert prints[0] == prints[1] != prints[2]


def test_a_projector_that_does_not_fit(mmproj: Path, tmp_path: Path) -> None:
    other = towers.write(tmp_path / "mmproj.gguf", "pixtral", n_out=40).path
    with pytest.raises(ModelError, match="it is the projector of another model"):
        make_service(ServerConfig(), EngineChoice(options={"mmproj": str(other)}))
    story = tmp_path / "story.gguf"
    story.symlink_to(built_in_model())
    found = make_service(ServerConfig(), EngineChoice(story, options={"mmproj": "auto"}))
    assert found.model.pictures is None  # it lies beside the model and is not its
    found.model.close()
    (tmp_path / "mmproj-zzz.gguf").symlink_to(mmproj)  # behind the other one, and it fits
    found = make_service(ServerConfig(), EngineChoice(story, options={"mmproj": "auto"}))
    assert found.model.pictures is not None
    found.model.close()


@pytest.mark.slow  # takes long; `test_router.py` has the router, the tests below the pictures
def test_the_command_and_a_router(mmproj: Path, tmp_path: Path) -> None:
    """A picture through both; one of more than 4 MiB is not too large for either."""
    ask = chat("See", picture())
    with started(tmp_path, "--mmproj", mmproj) as server:
        router = Command(tmp_path, "-b", server.url, verb="route")
        try:
            said = [httpx.post(url + ask.path, json=ask.body, timeout=SECONDS) for url in (server.url, router.url)]
            large = chat("See", picture(1, 1300, 1300))
            refused = [httpx.post(url + ask.path, json=large.body, timeout=SECONDS) for url in (server.url, router.url)]
        finally:
            router.end()
    one, other = (answer.json()["choices"] for answer in said)
    assert one == other
    assert one[0]["message"]["content"]
    for answer in refused:  # it would be a thousand rows
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
