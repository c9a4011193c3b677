"""`zinc certify`: each level holds on a good server, and fails on one that has its fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.certify.fake import fake
from zinc_rt.certify import workload
from zinc_rt.certify.answers import BadAnswer, ProbeAnswer, first_difference, read_answer
from zinc_rt.certify.ladder import LadderVerdict, LevelResult
from zinc_rt.certify.server import RefusedRequest
from zinc_rt.cli.main import main

FEW = ("--repeats", "1", "--max-tokens", "4", "--evict", "1")


@pytest.fixture(autouse=True)
def _two_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "_PROMPTS", workload._PROMPTS[1:3])


def run(tmp_path: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the report."""
    path = tmp_path / "report.json"
    code = main(["certify", *words, "--output", str(path)])
    return code, json.loads(path.read_text())


def verdicts(report: dict[str, Any]) -> dict[str, str]:
    levels = [*report["servers"][0]["levels"], *report["levels"]]
    return {level["level"]: level["verdict"] for level in levels}


def test_a_good_server_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    with fake() as server:
        code, report = run(tmp_path, server.url, *FEW, "--load", "12", "--page", str(page))
    assert code == 0
    assert verdicts(report) == {"L0": "holds", "L1": "holds", "L2": "holds", "L5": "holds"}
    assert server.most > 1
    assert report["servers"][0]["levels"][0]["sampled"]["equal"] == 2
    assert report["servers"][0]["levels"][0]["greedy"]["tokens"] == 8
    assert "not computed again" in report["servers"][0]["levels"][3]["why"]
    text = page.read_text()
    assert "http-equiv" not in text
    assert "src=" not in text
    assert text.count("<tr>") == 1 + 4 + 1 + 4
    assert "L2     holds" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("fault", "level", "kinds"),
    [
        ("repeat", "L0", {"greedy", "sampled"}),
        ("sampled", "L0", {"sampled"}),
        ("company", "L1", {"greedy", "sampled"}),
        pytest.param("ulp in company", "L1", {"greedy", "sampled"}, marks=pytest.mark.slow),
        ("cache", "L2", {"greedy", "sampled"}),
        ("broken chain", "L5", set()),
        pytest.param("other text", "L5", {"greedy", "sampled"}, marks=pytest.mark.slow),
        ("other numbers", "L5", {"greedy", "sampled"}),
    ],
)
def test_each_level_can_fail(tmp_path: Path, fault: str, level: str, kinds: set[str]) -> None:
    with fake(fault) as server:
        code, report = run(tmp_path, server.url, *FEW)
    assert code == 1
    found = {one["level"]: one for one in report["servers"][0]["levels"]}
    before = [one["verdict"] for name, one in found.items() if name < level]
    assert found[level]["verdict"] == "fails"
    assert set(before) <= {"holds"}
    failing = {kind for kind in ("greedy", "sampled") if found[level][kind]["verdict"] == "fails"}
    assert failing <= kinds
    assert bool(failing) == bool(kinds)
    assert all("differ" in found[level][kind]["first"] or level == "L5" for kind in failing)


@pytest.mark.parametrize("fault", ["no logprobs", "no receipts", "empty"])
def test_what_is_not_offered_is_not_held(tmp_path: Path, fault: str) -> None:
    with fake(fault) as server:
        code, report = run(tmp_path, server.url, *FEW)
    assert code == 0
    found, offered = verdicts(report), report["servers"][0]["offered"]
    if fault == "no logprobs":
        assert (offered["log-probabilities"], found["L0"]) == ("not offered", "holds")
        assert report["servers"][0]["levels"][0]["greedy"]["tokens"] == 0
    elif fault == "no receipts":
        assert (offered["receipts"], found["L5"]) == ("not offered", "not offered")
    else:
        assert set(found.values()) == {"not tried"}


def test_fields_and_endpoints_that_are_refused(tmp_path: Path) -> None:
    with fake(refuses=("logprobs", "seed", "/chat/completions")) as server:
        report = run(tmp_path, server.url, *FEW)[1]
    offered = report["servers"][0]["offered"]
    assert (offered["log-probabilities"], offered["seed"]) == ("refused", "refused")
    assert report["servers"][0]["endpoint"] == "/completions"
    assert "refuses seeds" in report["servers"][0]["levels"][0]["why"]


def test_configurations_and_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with fake(busy=1) as one, fake() as same, fake(salt="x") as other:
        code, first = run(tmp_path, one.url, same.url, *FEW, "--machine", "a")
        assert (code, verdicts(first)["L3"]) == (0, "holds")
        second = run(tmp_path, other.url, *FEW, "--machine", "b")[1]
    elsewhere = {**first, "servers": [{**first["servers"][1], "machine": "b"}]}
    paths = [str(tmp_path / name) for name in "abc"]
    for path, report in zip(paths, (first, elsewhere, second), strict=True):
        Path(path).write_text(json.dumps(report))
    capsys.readouterr()
    for path, code, level in zip(paths, (0, 0, 1), ("L3     holds", "L4     holds", "L4     fails"), strict=True):
        assert main(["certify", "--compare", paths[0], path]) == code
        assert level in capsys.readouterr().out
    for name, damaged in (("logprobs", ["x"]), ("logprobs", 5), ("text", 5), ("seed", "1"), ("id", None)):
        second["servers"][0]["observations"][0][name] = damaged
        Path(paths[2]).write_text(json.dumps(second))
        assert main(["certify", "--compare", paths[0], paths[2]]) == 2
        assert "is no report of zinc certify" in capsys.readouterr().err
        second["servers"][0]["observations"][0] = first["servers"][0]["observations"][0].copy()


def test_errors_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text('{"format": "zinc-certify/1", "servers": [{"observations": [{}]}]}')
    with fake() as server, fake(refuses=("messages", "prompt")) as refusing:
        cases = [
            ([], 2, "give the address"),
            (["127.0.0.1"], 2, "is no address"),
            (["http://127.0.0.1:1"], 1, "does not answer"),
            ([server.url, "--name", "gpt"], 2, "has no model 'gpt'; it has fake"),
            ([refusing.url], 1, "answers no request"),
            (["--compare", "a"], 2, "takes two reports"),
            (["--compare", str(bad), str(bad)], 2, "is no report"),
            (["--compare", str(tmp_path / "no"), str(bad)], 2, "No such file"),
        ]
        for words, code, said in cases:
            assert main(["certify", *words]) == code
            lines = capsys.readouterr().err.splitlines()
            assert said in lines[-1]
            assert lines[-1].startswith("zinc: error: ")


def test_answers_are_compared_to_the_last_digit() -> None:
    def answer(number: str) -> bytes:
        token = {"token": "a", "logprob": "NUMBER", "top_logprobs": [{"token": "b", "logprob": -2}]}
        choice = {"message": {"content": "a"}, "finish_reason": "stop", "logprobs": {"content": [token]}}
        return json.dumps({"id": "x", "choices": [choice]}).replace('"NUMBER"', number).encode()

    one, other = read_answer(answer("-0.10000000000000001")), read_answer(answer("-0.1"))
    assert first_difference(one, one) is None
    assert "-0.10000000000000001" in str(first_difference(one, other))
    old = (
        '{"choices": [{"text": "a", "finish_reason": "stop", "logprobs": {"tokens": ["a"], "token_logprobs": [-1.0]}}]}'
    )
    assert read_answer(old.encode()).logprobs == ('["a", "-1.0", []]',)
    for body in (b"", b"[]", b"{}", b'{"choices": []}', b'{"choices": [{"text": 3}]}', b"[" * 100_000):
        with pytest.raises(BadAnswer):
            read_answer(body)


def test_a_level_with_refusals_was_not_tried() -> None:
    request = workload.ProbeRequest("a", 0.0, 1, 1)
    answer = ProbeAnswer("x", "a", "stop", ())
    level = LevelResult("L1")
    level.of(request).add(request, answer, answer, "alone")
    assert level.verdict is LadderVerdict.holds
    level.of(request).add(request, answer, RefusedRequest(503, "busy"), "64 at once")
    assert level.verdict is LadderVerdict.not_tried
    assert level.greedy.first == "64 at once: HTTP 503: busy"
    level.of(request).add(request, answer, ProbeAnswer("y", "b", "stop", ()), "64 at once")
    assert level.verdict is LadderVerdict.fails
