"""Pictures in the bodies of every interface, and what is refused of them: one clear error each."""

from __future__ import annotations

import asyncio
import io
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.serving.api.conftest import SAYS, Bench, MakeBench
from tests.serving.api.fake import FakeClient
from tests.serving.pictures import base64_of, data_url, part, picture, write_projector
from zinc_rt.gguf import GGUFFile
from zinc_rt.llm.load import built_in_model
from zinc_rt.models import define
from zinc_rt.models.towers.tower import Tower
from zinc_rt.serving.api.config import ServerConfig, TenantConfig, TenantConfigs
from zinc_rt.serving.api.errors import ApiError
from zinc_rt.serving.api.limits import LargeBodies, Limits
from zinc_rt.serving.api.logs import make_logger
from zinc_rt.serving.api.media import MediaRule
from zinc_rt.serving.api.pictures import RequestPictures
from zinc_rt.serving.api.served_model import ServedModel, fingerprint
from zinc_rt.serving.api.service import Service
from zinc_rt.text import Tokenizer
from zinc_rt.vision.picture import Picture, PictureSource, read_picture
from zinc_rt.vision.picture_process import PictureLimits
from zinc_rt.vision.projector import with_projector
from zinc_rt.vision.shown import PictureReader

Seeing = Callable[..., Bench]
ONE = picture()


@pytest.fixture(scope="session")
def tower(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tower, Path]:
    path = write_projector(tmp_path_factory.mktemp("projector"))
    with GGUFFile.open(built_in_model()) as file, GGUFFile.open(path) as shown:
        return with_projector(define(file), file, shown)[0], path


@pytest.fixture
def seeing(tower: tuple[Tower, Path]) -> Iterator[Seeing]:
    """Makes a server whose model reads pictures. limits, rule, decoding: of it."""
    models: list[ServedModel] = []

    def make(
        limits: Limits | None = None,
        rule: MediaRule | None = None,
        decoding: PictureLimits | None = None,
        **tenant: Any,
    ) -> Bench:
        with GGUFFile.open(built_in_model()) as file:
            tokenizer = Tokenizer.from_metadata(file.metadata)
            pictures = RequestPictures(tower[0], b"one", rule, decoding)
            models.append(ServedModel.read(file, tokenizer, 512, ["story"], pictures, tower[1]))
        ids = tokenizer.encode(SAYS, add_special=False)
        client, log = FakeClient(lambda request: ids, n_ctx=512), io.StringIO()
        tenants = TenantConfigs({"default": TenantConfig(**tenant)}, limits or Limits())
        return Bench(Service(ServerConfig(), client, models[-1], make_logger(log), tenants), client, log)

    yield make
    for model in models:
        model.close()


def said(*content: dict[str, Any]) -> dict[str, Any]:
    return {"model": "story", "messages": [{"role": "user", "content": [*content, {"type": "text", "text": "See"}]}]}


BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", said(part(data_url(ONE), detail="high"))),
    "bare base64": ("/v1/chat/completions", said(part(base64_of(ONE)))),
    "other data URL": ("/v1/chat/completions", said(part(f"DATA:image/png;charset=utf-8;BASE64,{base64_of(ONE)}"))),
    "string": ("/v1/chat/completions", said({"type": "image_url", "image_url": data_url(ONE)})),
    "responses": (
        "/v1/responses",
        {
            "input": [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_image", "image_url": data_url(ONE), "detail": "auto"},
                        {"type": "input_text", "text": "See"},
                    ],
                }
            ]
        },
    ),
    "messages": (
        "/v1/messages",
        {
            "model": "story",
            "max_tokens": 5,
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/png", "data": base64_of(ONE)},
                        },
                        {"type": "text", "text": "See"},
                    ],
                }
            ],
        },
    ),
    "messages by URL": (
        "/v1/messages",
        {
            "model": "story",
            "max_tokens": 5,
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image", "source": {"type": "url", "url": data_url(ONE)}},
                        {"type": "text", "text": "See"},
                    ],
                }
            ],
        },
    ),
    "ollama chat": (
        "/api/chat",
        {"model": "story", "messages": [{"role": "user", "content": "See", "images": [base64_of(ONE)]}]},
    ),
    "ollama generate": ("/api/generate", {"model": "story", "prompt": "See", "images": [base64_of(ONE)]}),
}


def test_every_interface_makes_the_same_prompt(seeing: Seeing) -> None:
    async def go() -> None:
        b = seeing()
        for name, (path, body) in BODIES.items():
            answer = await b.http.post(path, json=body)
            assert answer.status_code == 200, (name, answer.text)
        first, *others = b.client.submitted
        assert len(others) == len(BODIES) - 1
        for other in others:
            assert (other.prompt, other.pictures) == (first.prompt, first.pictures)
        (shown,) = first.pictures
        rows = shown.placed.ids(0, shown.placed.n_rows)
        assert len(rows) > 20
        assert set(rows) < set(first.prompt)
        await b.http.aclose()

    asyncio.run(go())


def test_usage_and_counts_have_the_rows_of_pictures(seeing: Seeing) -> None:
    async def go() -> None:
        b = seeing()
        _, body = BODIES["chat"]
        usage = (await b.http.post("/v1/chat/completions", json=body)).json()["usage"]
        (request,) = b.client.submitted
        assert usage["prompt_tokens"] == len(request.prompt)
        asked = {k: v for k, v in BODIES["messages"][1].items() if k != "max_tokens"}
        counted = await b.http.post("/v1/messages/count_tokens", json=asked)
        assert counted.json() == {"input_tokens": len(request.prompt)}
        ollama = await b.http.post("/api/chat", json={**BODIES["ollama chat"][1], "stream": False})
        assert ollama.json()["prompt_eval_count"] == len(request.prompt)
        for pieces in (False, True):
            asked = {"messages": body["messages"], "with_pieces": pieces}
            tokens = (await b.http.post("/tokenize", json=asked)).json()
            assert tokens["count"] == len(request.prompt)
            rows = [token == {"id": -1, "piece": ""} if pieces else token == -1 for token in tokens["tokens"]]
            assert sum(rows) == request.pictures[0].placed.n_rows
        large = said(part(data_url(picture(9, 500, 500))))["messages"]
        assert (await b.http.post("/tokenize", json={"messages": large})).json()["count"] > 500
        long = [*large, {"role": "user", "content": "x" * (600 << 10)}]
        assert (await b.http.post("/tokenize", json={"messages": long})).status_code == 413
        shown = await b.http.post("/apply-template", json={"messages": body["messages"]})
        assert shown.json()["prompt"].count("<picture>") == 1
        await b.http.aclose()

    asyncio.run(go())


def test_pictures_in_results_of_tools_and_in_later_turns(seeing: Seeing) -> None:
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": base64_of(ONE)}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "Here"}, block]}
    called = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {}}]}
    output = [{"type": "input_text", "text": "Here"}, {"type": "input_image", "image_url": data_url(ONE)}]
    items = [
        {"role": "user", "content": "Look"},
        {"type": "function_call", "call_id": "t", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "t", "output": output},
    ]

    async def go() -> None:
        b = seeing()
        talk = [{"role": "user", "content": "Look"}, called, {"role": "user", "content": [result]}]
        answer = await b.http.post("/v1/messages", json={"model": "story", "max_tokens": 5, "messages": talk})
        assert answer.status_code == 200, answer.text
        response = await b.http.post("/v1/responses", json={"input": items})
        assert response.status_code == 200, response.text
        more = {"previous_response_id": response.json()["id"], "input": "And?"}
        assert (await b.http.post("/v1/responses", json=more)).status_code == 200
        one, two, three = b.client.submitted
        assert one.pictures == two.pictures == three.pictures != ()
        shown = await b.http.get(f"/v1/responses/{response.json()['id']}/input_items")
        assert shown.json()["data"][0]["output"] == output
        await b.http.aclose()

    asyncio.run(go())


def bomb(side: int) -> bytes:
    """A small PNG of many pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")


def line(width: int, height: int) -> bytes:
    made = io.BytesIO()
    Image.new("RGB", (width, height)).save(made, "PNG")
    return made.getvalue()


PLACE = "messages[0].content[0].image_url.url"
WRONG: dict[str, tuple[object, str, str, str]] = {
    "nothing": ("", PLACE, "invalid_value", "give a data: URL"),
    "a number": (7, PLACE, "invalid_value", "give a data: URL"),
    "a text": ("data:text/plain;base64,aGk=", PLACE, "invalid_value", "give data:image/png;base64"),
    "no base64": ("data:image/png;base64,@@@@", PLACE, "invalid_value", "a data: URL that is not base64"),
    "not encoded": ("data:image/png,abc", PLACE, "invalid_value", "give data:image/png;base64"),
    "a path": ("/etc/passwd", PLACE, "invalid_value", "give data:image/png;base64"),
    "a path that is base64": ("/etc/shadow/", PLACE, "invalid_picture", "no picture that can be read"),
    "a word": ("picture.png", PLACE, "invalid_value", "give data:image/png;base64"),
    "a file": ("file:///etc/passwd", PLACE, "invalid_value", "a file: URL, which this server does not read"),
    "another host": ("http://example.com/a.png", PLACE, "invalid_value", "--media-hosts"),
    "another scheme": ("ftp://example.com/a.png", PLACE, "invalid_value", "give data:image/png;base64"),
    "truncated": (data_url(ONE[: len(ONE) // 2]), PLACE, "invalid_picture", "no picture that can be read"),
    "no bytes": ("data:image/png;base64,", PLACE, "invalid_picture", "no picture that can be read"),
    "SVG": (data_url(b"<svg></svg>", "image/svg+xml"), PLACE, "invalid_picture", "known are PNG"),
    "many pixels": (data_url(bomb(12000)), PLACE, "invalid_picture", "12000 x 12000 pixels; the limit is"),
    "more pixels": (data_url(bomb(65000)), PLACE, "invalid_picture", "pixels"),
    "a line": (data_url(line(900, 2)), PLACE, "invalid_picture", "one side may be 200 times the other"),
}


@pytest.mark.parametrize("name", WRONG)
def test_refused(name: str, seeing: Seeing) -> None:
    url, place, code, words = WRONG[name]

    async def go() -> None:
        b = seeing()
        answer = await b.http.post("/v1/chat/completions", json=said(part(url)))
        error = answer.json()["error"]
        assert answer.status_code == 400, answer.text
        assert (error["param"], error["code"]) == (place, code)
        assert words in error["message"]
        assert len(error["message"]) < 400
        assert b.client.submitted == []
        await b.http.aclose()

    asyncio.run(go())


def test_a_path_is_never_read(seeing: Seeing, tmp_path: Path) -> None:
    """Whatever the type of the part and its fields say."""
    file = tmp_path / "a.png"
    file.write_bytes(ONE)
    parts = [
        {"type": "image", "image": str(file)},
        {"type": "image", "image_url": str(file)},
        {"type": "input_image", "image_url": f"file://{file}"},
        {"type": "image_url", "image_url": {"url": f"FILE:{file}"}},
        {"type": "image_url", "picture": "x", "place": "y"},
    ]

    async def go() -> None:
        b = seeing()
        for one in parts:
            answer = await b.http.post("/v1/chat/completions", json=said(one))
            assert answer.status_code == 400, one
            assert answer.json()["error"]["param"].startswith("messages[0].content[0]")
        await b.http.aclose()

    asyncio.run(go())


def test_errors_name_the_field_of_each_interface(seeing: Seeing) -> None:
    def broken(body: Any) -> Any:
        if isinstance(body, dict):
            return {key: broken(value) for key, value in body.items()}
        if isinstance(body, list):
            return [broken(value) for value in body]
        return body.replace(base64_of(ONE), "aGk=") if isinstance(body, str) else body

    places = {
        "responses": "input[0].content[0].image_url",
        "messages": "messages[0].content[0].source.data",
        "messages by URL": "messages[0].content[0].source.url",
        "ollama chat": "messages[0].images[0]",
        "ollama generate": "images[0]",
    }

    async def go() -> None:
        b = seeing()
        for name, place in places.items():
            path, body = BODIES[name]
            answer = await b.http.post(path, json={"system": "Be brief.", **broken(body)})
            assert answer.status_code == 400, name
            assert place in answer.text, (name, answer.text)
        item = {"role": "user", "content": [{"type": "input_image", "file_id": "file-1"}]}
        answer = await b.http.post("/v1/responses", json={"input": [item]})
        assert answer.json()["error"]["param"] == "input[0].content[0].image_url"
        for source in (None, {"type": "file", "file_id": "x"}, {"type": "base64"}):
            block = {"type": "image", "source": source}
            asked = {"model": "story", "max_tokens": 5, "messages": [{"role": "user", "content": [block]}]}
            answer = await b.http.post("/v1/messages", json=asked)
            assert answer.status_code == 400
            assert "messages[0].content[0].source" in answer.json()["error"]["message"]
        await b.http.aclose()

    asyncio.run(go())


def test_a_model_that_reads_no_pictures_says_what_to_do(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        for name, (path, body) in BODIES.items():
            answer = await b.http.post(path, json=body)
            assert answer.status_code == 400, name
            assert "--mmproj" in answer.text, (name, answer.text)
        assert (await b.http.get("/props")).json()["modalities"]["vision"] is False
        await b.http.aclose()

    asyncio.run(go())


def test_what_is_told_of_a_model_that_reads_pictures(seeing: Seeing) -> None:
    async def go() -> None:
        b = seeing()
        assert (await b.http.get("/props")).json()["modalities"]["vision"] is True
        (model,) = (await b.http.get("/v1/models")).json()["data"]
        assert model["meta"]["pictures"] is True
        shown = await b.http.post("/api/show", json={"model": "story"})
        assert "vision" in shown.json()["capabilities"]
        with GGUFFile.open(built_in_model()) as file:
            assert b.service.model.fingerprint != fingerprint(Path(file.path))
        await b.http.aclose()

    asyncio.run(go())


def test_limits(seeing: Seeing) -> None:
    two, many = said(*[part(data_url(picture(n))) for n in (1, 2)]), said(*[part(data_url(ONE))] * 3)

    async def refused(limits: Limits, body: dict[str, Any]) -> httpx.Response:
        b = seeing(limits)
        answer = await b.http.post("/v1/chat/completions", json=body)
        await b.http.aclose()
        return answer

    async def go() -> None:
        error = (await refused(Limits(pictures=2), many)).json()["error"]
        assert error["code"] == "too_many_pictures"
        assert error["param"] == "messages[0].content[2]"
        assert "picture 3 of 3; a request may have 2" in error["message"]
        error = (await refused(Limits(picture_bytes=len(ONE) + 100), two)).json()["error"]
        assert (error["code"], error["param"]) == ("picture_too_large", "messages[0].content[1].image_url.url")
        assert (await refused(Limits(picture_bytes=10 * len(ONE)), two)).status_code == 200
        large = await refused(Limits(body_bytes=1000, picture_bytes=1000), two)
        assert large.status_code == 413

    asyncio.run(go())


def test_a_body_may_be_larger_where_pictures_are_read(seeing: Seeing, bench: MakeBench) -> None:
    body = said(part(data_url(picture(9, 1300, 1300))))

    async def go() -> None:
        b = bench()
        assert (await b.http.post("/v1/chat/completions", json=body)).status_code == 413
        await b.http.aclose()
        b = seeing(Limits(picture_bytes=8 << 20))
        answer = await b.http.post("/v1/chat/completions", json=body)
        assert answer.json()["error"]["code"] == "context_length_exceeded"  # a thousand rows
        await b.http.aclose()

    asyncio.run(go())


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.sampled_from([data_url(ONE), "data:,", "x:"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["url", "type", "data", "media_type", "detail", "base64"]), inner, max_size=3)
    ),
    max_leaves=5,
)


def test_parts_of_any_shape(seeing: Seeing) -> None:
    """They are answered or refused, never a fault of the server."""
    with asyncio.Runner() as runner:
        b = seeing()

        @settings(deadline=None, max_examples=12)
        @given(st.sampled_from(["image_url", "input_image", "image"]), ODD, ODD)
        def one(kind: str, url: Any, source: Any) -> None:
            block = {"type": kind, "image_url": url, "source": source, "image": url}
            for path, body in (
                ("/v1/chat/completions", said(block)),
                ("/v1/messages", {**said(block), "max_tokens": 3}),
                ("/v1/responses", {"input": said(block)["messages"]}),
                ("/api/chat", {"model": "story", "messages": [{"role": "user", "content": "Hi", "images": url}]}),
            ):
                answer = runner.run(b.http.post(path, json=body))
                assert answer.status_code in (200, 400), (path, answer.text)

        one()
        assert b.service.running == {}
        runner.run(b.http.aclose())


def test_a_raw_prompt_has_no_pictures(seeing: Seeing) -> None:
    async def go() -> None:
        b = seeing()
        asked = {"model": "story", "prompt": "See", "raw": True, "images": [base64_of(ONE)]}
        answer = await b.http.post("/api/generate", json=asked)
        assert (answer.status_code, "images is not supported" in answer.json()["error"]) == (400, True)
        await b.http.aclose()

    asyncio.run(go())


def test_large_bodies_share_a_room(seeing: Seeing) -> None:
    """What they take is given back, however the request ends."""
    body = said(part(data_url(ONE)))

    async def go() -> None:
        b = seeing(Limits(body_bytes=1000))
        size = len(b.http.build_request("POST", "/v1/chat/completions", json=body).content)
        b.service.large = LargeBodies(size + size // 2)
        for _ in range(3):
            assert (await b.http.post("/v1/chat/completions", json=body)).status_code == 200
            assert b.service.large.held == 0
        wrong = await b.http.post("/v1/chat/completions", json={**body, "temperature": "x" * 2000})
        assert (wrong.status_code, b.service.large.held) == (400, 0)
        both = await asyncio.gather(*[b.http.post("/v1/chat/completions", json=body) for _ in range(2)])
        refused, answered = sorted(both, key=lambda answer: -answer.status_code)
        assert (answered.status_code, refused.status_code) == (200, 503)
        assert (refused.json()["error"]["code"], refused.headers["retry-after"]) == ("server_busy", "6")
        assert b.service.large.held == 0
        await b.http.aclose()

    asyncio.run(go())


def test_logs_have_no_pixels(seeing: Seeing) -> None:
    async def go() -> None:
        b = seeing(may_log_prompts=True)
        await b.http.post("/v1/chat/completions", json=BODIES["chat"][1])
        (found,) = [entry for entry in b.log if "prompt" in entry]
        assert found["prompt"][0]["content"] == [{"type": "image_url"}, {"type": "text", "text": "See"}]
        await b.http.aclose()

    asyncio.run(go())


def test_the_same_picture_is_decoded_once(tower: tuple[Tower, Path]) -> None:
    read: list[object] = []

    def count(source: PictureSource) -> Picture:
        read.append(source)
        return read_picture(source)

    reader = PictureReader(tower[0], b"x", count)
    for _ in range(3):
        reader.read(ONE)
    reader.read(picture(2))
    assert read == [ONE, picture(2)]


def test_hostile_pictures_end_their_process_alone(seeing: Seeing) -> None:
    """Too much memory, too much time, and a process that is killed: one error each, and the next picture is read."""

    async def go() -> None:
        for limits, side, words in (
            (PictureLimits(address_space=200 << 20), 8000, "MiB of memory to decode"),
            (PictureLimits(seconds=0.05), 4000, "not decoded after 0.05 s"),
        ):
            b = seeing(decoding=limits)
            await b.http.post("/v1/chat/completions", json=said(part(data_url(ONE))))  # starts the process
            answer = await b.http.post("/v1/chat/completions", json=said(part(data_url(white(side)))))
            error = answer.json()["error"]
            assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_picture", PLACE)
            assert words in error["message"]
            if limits.seconds > 1:
                answer = await b.http.post("/v1/chat/completions", json=said(part(data_url(picture(4)))))
                assert answer.status_code == 200
            await b.http.aclose()

    asyncio.run(go())


def test_others_are_answered_while_a_picture_is_read(seeing: Seeing) -> None:
    large = said(part(data_url(white(3500))))

    async def go() -> None:
        b = seeing()
        reading = asyncio.create_task(b.http.post("/v1/chat/completions", json=large))
        while not b.service.running:
            await asyncio.sleep(0)
        for _ in range(5):
            assert (await b.http.get("/health")).status_code == 200
            answer = await b.chat("Hi")
            assert answer.status_code == 200
        assert not reading.done()
        assert (await reading).json()["error"]["code"] == "context_length_exceeded"
        await b.http.aclose()

    asyncio.run(go())


def test_a_server_that_ends_does_not_wait_for_pictures(tower: tuple[Tower, Path]) -> None:
    async def go() -> None:
        pictures = RequestPictures(tower[0], b"one")
        shown = [
            asyncio.create_task(pictures.show(said(part(data_url(white(side))))["messages"], Limits()))
            for side in (5000, 4990, 4980)
        ]
        while pictures._decoder._child is None:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        began = time.monotonic()
        pictures.close()
        assert time.monotonic() - began < 2
        done = await asyncio.gather(*shown, return_exceptions=True)
        assert all(isinstance(one, (ApiError, asyncio.CancelledError)) for one in done), done
        assert time.monotonic() - began < 4

    asyncio.run(go())


@cache
def white(side: int) -> bytes:
    made = io.BytesIO()
    Image.new("L", (side, side), "white").save(made, "PNG", compress_level=1)
    return made.getvalue()
