"""States of the server: loading, an engine that is ill, one that embeds, one that fails in the middle; metrics."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import io
import logging
from typing import Any

import numpy as np
import pytest

import zinc_rt
from tests.serving.api.conftest import N_CTX, Bench, MakeBench, events
from zinc_rt.errors import IntegrityError, UsageError, ZincError
from zinc_rt.sampling.sampler import DegenerateLogits
from zinc_rt.scheduler import errors as scheduler_errors
from zinc_rt.scheduler.faults import FAULTS, failed
from zinc_rt.scheduler.messages import CancelReason, Failed, Fault, StepReport
from zinc_rt.serving.api import errors
from zinc_rt.serving.api.config import ServerConfig
from zinc_rt.serving.api.embedder import EmbeddingClient
from zinc_rt.serving.api.logs import make_logger, tell
from zinc_rt.serving.api.served_model import ServedModel
from zinc_rt.serving.api.service import Service


def test_nothing_is_answered_while_loading_and_while_the_engine_is_ill(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        for state, owner, name, code in (
            ("loading", b.service, "loading", "loading"),
            ("the engine is started again", b.client, "state", "engine_unavailable"),
        ):
            setattr(owner, name, state)
            refused = await b.chat()
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, code)
            assert refused.headers["retry-after"]
            ill = await b.http.get("/health")
            assert (ill.status_code, ill.json()) == (503, {"status": state})
            assert (await b.http.get("/health/ready")).status_code == 503
            assert (await b.http.get("/health/live")).status_code == 200
            for path in ("/v1/models", "/v1/models/story"):
                assert (await b.http.get(path)).status_code == (503 if state == "loading" else 200)
            setattr(owner, name, None)
            assert (await b.chat()).status_code == 200
            assert (await b.http.get("/health")).json() == {"status": "ok"}

    asyncio.run(go())


def test_every_fault_and_every_cancellation_has_a_row() -> None:
    assert errors.FAULTS.keys() == set(Fault)
    assert errors.CANCELLED.keys() == set(CancelReason)
    for reason in CancelReason:
        assert errors.cancelled(reason).status >= 499


def test_every_error_of_the_core_has_a_kind() -> None:
    own = {kind for kind in vars(scheduler_errors).values() if isinstance(kind, type) and issubclass(kind, ZincError)}
    assert {kind for kind in own if not issubclass(kind, IntegrityError)} - {ZincError, UsageError} <= set(FAULTS)
    assert failed("x", DegenerateLogits("-")).error is Fault.degenerate_logits
    assert failed("x", ZincError("-")).error is Fault.engine_error


@pytest.mark.parametrize("error", Fault)
def test_an_engine_that_fails_at_once_gives_a_status(bench: MakeBench, error: Fault) -> None:
    status = errors.FAULTS[error][0]

    async def go() -> None:
        for stream in (False, True):
            b = bench()
            b.client.fail_at_once = Failed("x", error, "it broke")
            answer = await b.chat(stream=stream)
            assert answer.status_code == status
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
            assert answer.json()["error"]["code"] == error.value

    asyncio.run(go())


def test_an_engine_that_fails_later_gives_an_error_in_the_stream(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        b.client.fail, b.client.fail_after = Failed("x", Fault.engine_error, "it broke"), 3
        answer = await b.chat(stream=True)
        assert answer.status_code == 200
        *_, last = answer.text.strip().split("\n\n")
        assert last.startswith('data: {"error":{"message":"the engine failed: it broke"')
        assert '"code":"engine_error"' in last
        whole = await b.chat()
        assert (whole.status_code, whole.json()["error"]["code"]) == (500, "engine_error")
        assert b.service.admission.inside == 0
        assert [line["outcome"] for line in b.log] == ["engine_error"] * 2

    asyncio.run(go())


def test_a_fault_of_ours_is_logged_and_told_without_details(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        b = bench()

        def broken(*args: object, **more: object) -> None:
            raise RuntimeError("secret")

        monkeypatch.setattr(b.service, "submit_of", broken)
        answer = await b.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
        assert "secret" not in answer.text
        (trace,) = [line for line in b.log if line["event"] == "internal error"]
        assert "RuntimeError: secret" in trace["trace"]
        assert trace["id"] in answer.text
        assert b.service.admission.inside == 0

    asyncio.run(go())


def test_metrics_count_what_was_done(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        usage = (await b.chat(n=2)).json()["usage"]
        await b.chat(n=99)
        await b.chat(stop="owl")
        b.service.metrics.step(StepReport(1, seconds=0.02, prefill_rows=5, decode_rows=3))
        text = (await b.http.get("/metrics")).text
        found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        chat = 'zinc_requests_total{{endpoint="/v1/chat/completions",outcome="{}",tenant="default"}}'
        assert float(found[chat.format("ok")]) == 2
        assert float(found[chat.format("invalid_value")]) == 1
        generated = float(found['zinc_tokens_total{kind="generated",tenant="default"}'])
        assert usage["completion_tokens"] < generated < 2 * usage["completion_tokens"]
        assert float(found['zinc_tokens_total{kind="prompt",tenant="default"}']) == 2 * usage["prompt_tokens"]
        assert float(found['zinc_ttft_seconds_count{qos="standard"}']) == 3
        assert float(found["zinc_step_seconds_sum"]) == 0.02
        assert float(found['zinc_step_rows_sum{kind="decode"}']) == 3
        assert found['zinc_requests{state="queued"}'] == "0.0"

    asyncio.run(go())


def test_an_engine_that_embeds(served: ServedModel) -> None:
    """The vectors are those of `Model.embed`; such a server generates no text."""

    async def go() -> None:
        client = EmbeddingClient(lambda: zinc_rt.load(device="cpu", n_ctx=N_CTX, embeddings=True, kernels="reference"))
        service = Service(ServerConfig(), client, served, make_logger())
        b: Any = Bench(service, client, None)  # type: ignore[arg-type]
        service.loaded(await client.start())
        try:
            assert service.model.dimensions is not None
            texts = ["A fox", "Two hens"]
            with zinc_rt.load(device="cpu", n_ctx=N_CTX, embeddings=True, kernels="reference") as model:
                wanted = model.embed(texts)
            body = (await b.http.post("/v1/embeddings", json={"input": texts})).json()
            assert np.array_equal(np.array([d["embedding"] for d in body["data"]], np.float32), wanted)
            ids = [served.tokenizer.encode(text) for text in texts]
            again = {"input": ids, "encoding_format": "base64"}
            coded = (await b.http.post("/v1/embeddings", json=again)).json()["data"]
            assert [base64.b64decode(d["embedding"]) for d in coded] == [row.tobytes() for row in wanted]
            assert body["usage"]["prompt_tokens"] == sum(map(len, ids))
            for mixed in ({"input": [texts[0], ids[1]]}, {"content": [ids[0], texts[1]]}):
                found = (await b.http.post("/v1/embeddings", json=mixed)).json()["data"]
                assert np.array_equal(np.array([d["embedding"] for d in found], np.float32), wanted)
            assert (await b.http.post("/v1/embeddings", json={"input": "a", "content": "a"})).status_code == 400
            few = (await b.http.post("/v1/embeddings", json={"input": "A fox", "dimensions": 8})).json()
            assert len(few["data"][0]["embedding"]) == 8
            many = await b.http.post("/v1/embeddings", json={"input": "A fox", "dimensions": 10**6})
            assert (many.status_code, many.json()["error"]["param"]) == (400, "dimensions")
            empty = await b.http.post("/v1/embeddings", json={"input": [""]})
            assert empty.status_code == 400
            long = await b.http.post("/v1/embeddings", json={"input": [[5] * 1000]})
            assert long.json()["error"]["code"] == "context_length_exceeded"
            assert (await b.chat()).json()["error"]["code"] == "wrong_kind_of_model"
            assert service.admission.inside == 0
        finally:
            await client.close()

    asyncio.run(go())


def test_an_engine_that_generates_does_not_embed(bench: MakeBench) -> None:
    async def go() -> None:
        answer = await bench().http.post("/v1/embeddings", json={"input": "A fox"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "wrong_kind_of_model")

    asyncio.run(go())


def test_a_model_without_a_template_takes_texts_alone(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        b.service.model = dataclasses.replace(b.service.model, chat=None)
        refused = await b.chat()
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "no_chat_template")
        streamed = await b.http.post("/v1/completions", json={"prompt": "A fox", "stream": True})
        assert events(streamed.text)

    asyncio.run(go())


def test_the_log_has_lines_of_its_level_alone() -> None:
    for level, n in (("debug", 3), ("info", 3), ("warning", 2), ("error", 1)):
        stream = io.StringIO()
        log = make_logger(stream, level=level)  # type: ignore[arg-type]
        for number in (logging.INFO, logging.WARNING, logging.ERROR):
            tell(log, "x", number)
        assert len(stream.getvalue().splitlines()) == n
