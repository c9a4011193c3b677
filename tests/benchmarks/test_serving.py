"""The benchmark of the servers: what its client reads, how its figures come about, what it writes down."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import ModuleType

import pytest

EVENTS = [{"choices": [{"text": text}]} for text in ("a", "bc", "")] + [
    {"choices": [], "usage": {"completion_tokens": 7}}
]
STREAM = b"".join(b"id: 1\ndata: " + json.dumps(event).encode() + b"\n\n" for event in EVENTS) + b"data: [DONE]\n\n"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunked(body: bytes, size: int) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


@pytest.mark.parametrize("size", [1, 7, 50, 10_000])
@pytest.mark.parametrize("cut", [1, 3, 64])
def test_an_answer_in_pieces(bench: dict[str, ModuleType], size: int, cut: int) -> None:
    raw = HEAD + chunked(STREAM, size)
    parts = [(float(i), raw[at : at + cut]) for i, at in enumerate(range(0, len(raw), cut))]
    answer = bench["serving_client"].Answer(0.0, parts)
    assert answer.status == 200
    assert [event for _, event in answer.events] == EVENTS
    assert [text for _, text in answer.tokens] == ["a", "bc"]
    assert (answer.text, answer.n_tokens) == ("abc", 7)
    for (moment, _), end in zip(answer.events, ends_of_events(), strict=True):
        assert moment == (len(HEAD) + offset_in_chunks(end - 1, size)) // cut
    assert bench["serving_client"].Answer(0.0, parts[: len(parts) // 2]).text in ("", "a", "abc")


def ends_of_events() -> list[int]:
    """Behind each event of the stream that is JSON."""
    return [at + 2 for at in range(len(STREAM)) if STREAM[at : at + 2] == b"\n\n"][:-1]


def offset_in_chunks(offset: int, size: int) -> int:
    """Where a byte of the stream is among chunks of a size."""
    for at in range(0, len(STREAM), size):
        if offset < at + size:
            break
    line = [len(b"%x\r\n" % min(size, len(STREAM) - k)) + 2 for k in range(0, at, size)]
    return offset + sum(line) + len(b"%x\r\n" % min(size, len(STREAM) - at))


def test_the_client_talks_to_a_server(bench: dict[str, ModuleType]) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            if head.startswith(b"POST"):
                body = await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
                assert json.loads(body) == {"prompt": [1]}
                for at in range(0, len(sent := HEAD + chunked(STREAM, 40)), 100):
                    writer.write(sent[at : at + 100])
                    await writer.drain()
            elif head.startswith(b"GET /gone"):
                break
            else:
                writer.write(b"HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        client = bench["serving_client"].Connection(server.sockets[0].getsockname()[1], "key")
        assert (await client.post("/v1/completions", {"prompt": [1]})).text == "abc"
        busy = await client.get("/health")
        assert (busy.status, busy.events) == (503, [(busy.end, {})])
        assert (await client.post("/v1/completions", {"prompt": [1]})).n_tokens == 7
        with pytest.raises(bench["serving_client"].AnswerBroken):
            await client.get("/gone")
        client.close()
        server.close()

    asyncio.run(main())


def test_goals(bench: dict[str, ModuleType]) -> None:
    aim = bench["serving_table"].Aim
    assert [aim(0.9).reached(x) for x in (0.89, 0.9, None, float("nan"))] == [False, True, None, None]
    assert [aim(5, most=True).reached(x) for x in (5, 5.1)] == [True, False]
    assert str(aim(0.1, 0.05, most=True)) == "≤ 0.1, aim 0.05"
    assert str(aim(2.5, 3.2, ratio=True)) == "≥ 2.5 x, aim 3.2 x"


def test_the_table(bench: dict[str, ModuleType], tmp_path: Path) -> None:
    machine = {"cpu": "A (R) CPU", "cores": 2, "usable": 2, "memory_gb": 8, "flags": ["avx2"]}
    table = bench["serving_table"].Table(machine, {"zinc_rt": "1"}, {"rounds": 3}, date="2026-01-02")
    for ours, peer in ((500.0, 201.0), (510.0, 199.0), (100.0, 200.0)):
        table.add("greedy", "ours", {"tokens/s": ours})
        table.add("greedy", "peer", {"tokens/s": peer})
    table.add("gap", "ours", {"worst gap, ms": 121.0})
    table.bandwidth += [30.0, 20.0]
    assert table.reached("greedy", "tokens/s") is True
    assert table.reached("gap", "worst gap, ms") is False
    assert table.reached("gap", "other") is None
    table.write(tmp_path, "serving")
    tree = json.loads((tmp_path / "serving-2026-01-02-a-r-cpu.json").read_text())
    assert tree["rows"][0]["ours"] == [500.0, 510.0, 100.0]
    assert [row["reached"] for row in tree["rows"]] == [True, False]
    text = (tmp_path / "serving-2026-01-02-a-r-cpu.md").read_text()
    assert "| greedy | tokens/s | 500.0 (100.0-510.0) | 200.0 (199.0-201.0) | 2.50 x | ≥ 2.5 x, aim 3.2 x ✓ |" in text
    assert "| gap | worst gap, ms | 121.0 |  |  | ≤ 120 ✗ |" in text
    assert "read bandwidth 20.0 to 30.0 GB/s" in text


def test_figures_of_several_loads(bench: dict[str, ModuleType]) -> None:
    table = bench["serving_table"].Table({}, {}, {})
    table.add("greedy", "ours", {"tokens/s": 400.0})
    table.add("sampled", "ours", {"tokens/s": 380.0})
    table.add("bare", "ours", {"16 sequences, the work of `greedy`, tokens/s": 500.0})
    bench["serving"].derive(table, "ours")
    assert table.middle("sampled", "of greedy", "ours") == 0.95
    assert table.middle("bare", "HTTP of the same work", "ours") == 0.8
    assert table.middle("bare", "single: over the bare step", "ours") is None
    bench["serving"].derive(table, "peer")
    assert table.middle("sampled", "of greedy", "peer") is None


def test_statistics(bench: dict[str, ModuleType]) -> None:
    slope = bench["serving_tenants"].slope
    assert slope([(float(s), 5.0 + s / 60) for s in range(50)]) == pytest.approx(1.0)
    assert slope([(float(s), 5.0 + 100 * (s == 7)) for s in range(50)]) == 0.0
    assert bench["serving_loads"].percentile([1.0, 2.0, 3.0], 0.5) == 2.0


def test_prompts_differ_and_repeat(bench: dict[str, ModuleType]) -> None:
    site = bench["serving_loads"].Site(None, 512)
    prompts = [tuple(site.prompt(name, number, 32)) for name in ("a", "b") for number in range(50)]
    assert len(set(prompts)) == 100
    assert prompts[3] == tuple(site.prompt("a", 3, 32))
    assert all(0 <= token < 512 for prompt in prompts for token in prompt)
