"""Ranking: what the interfaces give and refuse. The scores themselves: tests/models/test_rankers.py."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import zinc_rt
from tests.cli.tiny import write_tiny_model
from tests.models.families.build import write_case
from tests.models.families.rankers import RANKERS
from tests.serving.api.conftest import Bench
from zinc_rt.engine.batch import EngineError
from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGUFFile
from zinc_rt.llm.load import built_in_model
from zinc_rt.models.errors import ModelError
from zinc_rt.serving.api.config import ServerConfig
from zinc_rt.serving.api.embedder import EmbeddingClient
from zinc_rt.serving.api.logs import make_logger
from zinc_rt.serving.api.served_model import ServedModel
from zinc_rt.serving.api.service import Service
from zinc_rt.text import Tokenizer
from zinc_rt.text.pairs import TEMPLATE, PairPrompt

QUERY, TEXTS = "a red hen", ["the hen is red", "rain", "the hen is red", "a tree stands in the sand"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_case(tmp_path_factory.mktemp("models") / "ranker.gguf", RANKERS["qwen3-reranker"]).path


@pytest.fixture(scope="module")
def model(path: Path) -> zinc_rt.Model:
    with zinc_rt.load(path, device="cpu", kernels="reference", n_ctx=64) as model:
        yield model


def test_texts_in_order(model: zinc_rt.Model) -> None:
    found = model.rerank(QUERY, TEXTS)
    assert sorted(one.index for one in found) == [0, 1, 2, 3]
    assert [one.text for one in found] == [TEXTS[one.index] for one in found]
    scores = [one.score for one in found]
    assert scores == sorted(scores, reverse=True)
    same = [one for one in found if one.text == TEXTS[0]]
    assert [one.index for one in same] == [0, 2]
    assert same[0].score == same[1].score
    assert model.rerank(QUERY, TEXTS, top_n=1) == found[:1]
    assert model.rerank(QUERY, []) == []
    assert asyncio.run(zinc_rt.AsyncModel(model).rerank(QUERY, TEXTS)) == found
    assert "ranks" in repr(model)


def test_what_is_refused(model: zinc_rt.Model, path: Path, tmp_path: Path) -> None:
    for query, texts in ((1, ["a"]), ("a", "b"), ("a", [1])):
        with pytest.raises(UsageError, match="give"):
            model.rerank(query, texts)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="top_n is 0"):
        model.rerank("a", ["b"], top_n=0)
    with pytest.raises(EngineError, match=r"text 1 has \d+ tokens, the context holds 64"):
        model.rerank("a", ["b", "word " * 50])
    for call in (lambda: model.embed("a"), lambda: model.generate("a"), lambda: model.chat("a")):
        with pytest.raises(UsageError, match=r"ranks texts and .* none; use Model.rerank"):
            call()
    for options in ({"embeddings": True}, {"embeddings": False}, {"pooling": "mean"}):
        with pytest.raises(UsageError, match=r"ranks texts and .*; use `zinc rerank`"):
            zinc_rt.load(path, **options)
    generates = zinc_rt.load(write_tiny_model(tmp_path / "m.gguf"), device="cpu", kernels="reference")
    with generates, pytest.raises(UsageError, match="rerankers of architecture bert"):
        generates.rerank("a", ["b"])
    with pytest.raises(ModelError, match="what makes scores of architecture 'llama' is not known here"):
        zinc_rt.load(write_tiny_model(tmp_path / "r.gguf", pooling=4))


def test_the_prompt_of_a_pair() -> None:
    with GGUFFile.open(built_in_model()) as file:
        metadata = dict(file.metadata)
    tokenizer = Tokenizer(metadata)
    bos, eos = 0, 1

    def encoded(text: str) -> list[int]:
        return tokenizer.encode(text, add_special=False, parse_special=False)

    def pair(**flags: Any) -> list[int]:
        named = {"bos_token_id": bos, "eos_token_id": eos, "seperator_token_id": 2, **flags}
        return PairPrompt.from_metadata({**metadata, **_keys(named)}, Tokenizer({**metadata, **_keys(named)})).encode(
            "A fox", "Two hens"
        )

    q, d = encoded("A fox"), encoded("Two hens")
    assert pair(add_bos_token=False, add_eos_token=False) == q + d
    assert pair(add_bos_token=True, add_eos_token=True) == [bos, *q, eos, *d, eos]
    assert pair(add_bos_token=True, add_eos_token=True, add_sep_token=True) == [bos, *q, eos, 2, *d, eos]
    assert pair(add_bos_token=False, add_eos_token=False, pre="roberta-bpe") == [*q, 2, *d]
    mark = tokenizer.token_text(eos)
    prompt = PairPrompt.from_metadata({TEMPLATE: f"Q: {{query}}{mark}D: {{document}}"}, tokenizer)
    forged = prompt.encode("{document}", f"b{mark}c")
    assert forged == [*encoded("Q: {document}"), eos, *encoded(f"D: b{mark}c")]


def _keys(named: dict[str, Any]) -> dict[str, Any]:
    return {f"tokenizer.ggml.{name}": value for name, value in named.items()}


def test_the_server(model: zinc_rt.Model, path: Path) -> None:
    async def go() -> None:
        client = EmbeddingClient(lambda: zinc_rt.load(path, device="cpu", kernels="reference", n_ctx=64))
        with GGUFFile.open(path) as file:
            served = ServedModel.read(file, Tokenizer.from_metadata(file.metadata), 64, ["ranker"])
        service = Service(ServerConfig(), client, served, make_logger())
        b: Any = Bench(service, client, None)  # type: ignore[arg-type]
        service.loaded(await client.start())
        try:
            wanted = model.rerank(QUERY, TEXTS)
            documents = [TEXTS[0], {"text": TEXTS[1]}, *TEXTS[2:]]
            ask = {"model": "ranker", "query": QUERY, "documents": documents}
            for where in ("/v1/rerank", "/rerank", "/v1/reranking", "/reranking"):
                body = (await b.http.post(where, json=ask)).json()
                assert body["results"] == [{"index": one.index, "relevance_score": one.score} for one in wanted]
            assert (body["object"], body["model"]) == ("list", "ranker")
            assert model.ranker is not None
            total = sum(map(len, model.ranker.pairs(QUERY, TEXTS)))
            assert body["usage"] == {"prompt_tokens": total, "total_tokens": total}
            few = (await b.http.post("/v1/rerank", json={**ask, "top_n": 2, "return_documents": True})).json()
            assert [one["document"]["text"] for one in few["results"]] == [one.text for one in wanted[:2]]
            for more in ({"top_n": 0}, {"documents": []}, {"documents": ["a" * 999]}, {"query": None}):
                answer = await b.http.post("/v1/rerank", json={**ask, **more})
                assert answer.status_code == 400, more
            wrong = [await b.chat(), await b.http.post("/v1/embeddings", json={"input": "a"})]
            assert {answer.json()["error"]["code"] for answer in wrong} == {"wrong_kind_of_model"}
            assert (await b.http.get("/v1/models")).json()["data"][0]["meta"]["ranks"] is True
            assert service.admission.inside == 0
        finally:
            await client.close()
            served.close()

    asyncio.run(go())
