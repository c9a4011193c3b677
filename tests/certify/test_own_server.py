"""`zinc certify` against `zinc serve`: 64 requests at once, configurations, receipts made again, a server killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.serving.command import Command, started
from zinc_rt.certify import workload
from zinc_rt.cli.main import main
from zinc_rt.llm.load import built_in_model
from zinc_rt.serving.records.signing import can_sign

pytestmark = pytest.mark.slow
FEW = ("--repeats", "1", "--max-tokens", "12")
SIGNED = pytest.mark.skipif(not can_sign(), reason="needs the extra receipts: pip install cryptography")


def certify(report: Path, *words: str) -> list[dict[str, str]]:
    """The levels; all that were tried hold."""
    assert main(["certify", *words, *FEW, "--output", str(report)]) == 0
    found = json.loads(report.read_text())
    return [*(level for server in found["servers"] for level in server["levels"]), *found["levels"]]


def test_sixty_four_at_once_in_two_configurations(tmp_path: Path) -> None:
    """The second one has so little memory for its cache that prefixes are seen to leave it."""
    options = ("-t", "1", "-np", "2", "-b", "64", "--spec", "ngram", "-c", "1024", "--kv-memory", "4M")
    with started(tmp_path) as one, started(tmp_path, *options) as other:
        levels = certify(tmp_path / "r", one.url, other.url, "--load", "64", "--evict", "8")
    assert [level["verdict"] for level in levels] == ["holds"] * 3 + ["not offered"] + ["holds"] * 3 + [
        "not offered",
        "holds",
    ]
    assert "why" not in levels[6]
    assert levels[-1]["level"] == "L3"


@SIGNED
@pytest.mark.parametrize("path", [(), ("--completions",)], ids=["chats", "completions"])
def test_receipts_are_made_again(tmp_path: Path, path: tuple[str, ...]) -> None:
    records, keys = str(tmp_path / "r"), str(tmp_path / "k")
    with started(tmp_path, "--records", records, "--receipt-key", keys) as server:
        words = (server.url, "--evict", "0", "-m", str(built_in_model()), *path)
        found = certify(tmp_path / "report", *words)[-1]
        assert found["verdict"] == "holds"
        assert "computed again" in found["why"]
    assert main(["replay", "--chain", "--records", records, "--public-key", f"{keys}/receipts.pub"]) == 0


@SIGNED
def test_the_chain_outlives_a_server_that_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records, keys = str(tmp_path / "r"), str(tmp_path / "k")
    options = ("--records", records, "--receipt-key", keys)
    for _ in range(2):
        server = Command(tmp_path, *options)
        try:
            certify(tmp_path / "report", server.url, "--evict", "0", "--load", "16")
        finally:
            server.end()  # SIGKILL
    assert main(["replay", "--chain", "--records", records, "--public-key", f"{keys}/receipts.pub"]) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert int(said.split(" entries")[0].rpartition(" ")[2]) >= 2 * len(workload.probes(1))
