"""`zinc pull`, `list`, `rm`, `-hf` and names in `-m`, against a server that speaks the hub's protocol."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hub.server import COMMIT, Hub, serving
from zinc_rt.gguf import GGUFFile
from zinc_rt.loading import built_in_model

REPO = "someone/story-GGUF"
STORY = built_in_model().read_bytes()
CHUNK = 10 << 20
"""Bytes that the hub's library writes at once."""
RETRIES, PREVIEW = 6, 1
"""How often it asks again; requests for a file's beginning before it is downloaded: none follows one that fails."""
LARGE = bytes(range(256)) * (3 * CHUNK // 512)
Zinc = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def hub() -> Iterator[Hub]:
    files = {"story-Q8_0.gguf": STORY, "story-Q4_K_M.gguf": STORY + b"\0", "mmproj-F16.gguf": b"x", "README.md": b"hi"}
    with serving(Hub({REPO: files, "someone/text": {"README.md": b"hi"}})) as made:
        yield made


@pytest.fixture
def zinc(hub: Hub, tmp_path: Path) -> Zinc:
    """The command, with a home of its own and this hub."""
    settings = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1"}
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "NO_PROXY": "*", **settings}

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "zinc_rt", *arguments]
        return subprocess.run(command, env={**here, **more}, capture_output=True, text=True, timeout=120, check=False)

    return run


def blobs(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "hf" / "hub").glob("models--*/blobs/*"))


def failed(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """One line, without a traceback, with these words."""
    assert done.returncode == code
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("zinc: error: "), done.stderr
    assert all(word in last for word in words), last
    assert "Traceback" not in done.stderr


def test_from_a_name_to_text(zinc: Zinc, hub: Hub, tmp_path: Path) -> None:
    pulled = zinc("pull", f"{REPO}:q8_0")
    assert pulled.returncode == 0, pulled.stderr
    path = Path(pulled.stdout.strip())
    assert path.read_bytes() == STORY
    assert f"{REPO}: story-Q8_0.gguf" in pulled.stderr
    assert "license mit" in pulled.stderr
    assert "of memory with 4096 positions" in pulled.stderr
    assert "tokens/s on this CPU" in pulled.stderr
    assert not [request for request in hub.asked("/cdn/") if "authorization" in request[2]]

    listed = json.loads(zinc("list", "--json").stdout)
    assert listed == [
        {"name": f"{REPO}:Q8_0", "repo": REPO, "quant": "Q8_0", "bytes": len(STORY), "paths": [str(path)]}
    ]

    hub.requests.clear()
    shown = zinc("show", "--json", "-m", f"{REPO}:Q8_0", HF_HUB_OFFLINE="1")
    assert json.loads(shown.stdout)["path"] == str(path)
    said = zinc("run", "Once", "-n", "4", "--seed", "1", "-hf", f"{REPO}:Q8_0", "--kernels", "reference")
    again = zinc("run", "Once", "-n", "4", "--seed", "1", "--kernels", "reference")
    assert (said.returncode, said.stdout) == (0, again.stdout)
    assert hub.requests == []  # what is there is not asked for

    removed = zinc("rm", f"{REPO}:Q8_0", "--yes")
    assert removed.returncode == 0
    assert (zinc("list", "--json").stdout, blobs(tmp_path)) == ("[]\n", [])


def test_a_transfer_that_breaks_off_goes_on(zinc: Zinc, hub: Hub, tmp_path: Path) -> None:
    hub.files[REPO]["large-Q6_K.gguf"] = LARGE
    hub.cuts = [*[0] * PREVIEW, CHUNK + 300_000, *[0] * RETRIES]
    failed(zinc("pull", f"{REPO}:Q6_K"), 1, "does not answer", "HF_ENDPOINT")
    (part,) = blobs(tmp_path)
    assert part.name.endswith(".incomplete")
    assert part.read_bytes() == LARGE[:CHUNK]
    assert zinc("list", "--json").stdout == "[]\n"
    failed(zinc("run", "Once", "-m", f"{REPO}:Q6_K"), 1, "is not downloaded: zinc pull")
    hub.cuts = []
    hub.requests.clear()
    path = Path(zinc("pull", f"{REPO}:Q6_K").stdout.strip())
    assert path.read_bytes() == LARGE
    assert hub.asked("/cdn/")[-1][2]["range"] == f"bytes={CHUNK}-"


@pytest.mark.slow
def test_a_server_without_ranges_sends_all_again(zinc: Zinc, hub: Hub, tmp_path: Path) -> None:
    hub.files[REPO]["large-Q6_K.gguf"] = LARGE
    hub.no_ranges = True
    hub.cuts = [0, CHUNK + 300_000, *[0] * RETRIES]
    assert zinc("pull", f"{REPO}:Q6_K").returncode == 1
    hub.cuts = []
    assert Path(zinc("pull", f"{REPO}:Q6_K").stdout.strip()).read_bytes() == LARGE


def test_damaged_bytes_are_not_kept(zinc: Zinc, hub: Hub, tmp_path: Path) -> None:
    hub.damaged = True
    failed(zinc("pull", f"{REPO}:Q8_0"), 1, "arrived damaged", "SHA-256", "pull it again")
    assert blobs(tmp_path) == []
    hub.damaged = False
    assert zinc("pull", f"{REPO}:Q8_0").returncode == 0


def test_tokens_stay_with_the_hub(zinc: Zinc, hub: Hub) -> None:
    hub.token = "hf_secret"
    failed(zinc("pull", f"{REPO}:Q8_0"), 1, "no repository", "HF_TOKEN")
    assert zinc("pull", f"{REPO}:Q8_0", HF_TOKEN="hf_secret").returncode == 0
    assert not [request for request in hub.asked("/cdn/") if "authorization" in request[2]]
    hub.gated.add(REPO)
    failed(zinc("pull", f"{REPO}:Q4_K_M", HF_TOKEN="hf_secret"), 1, "terms accepted", f"{hub.url}/{REPO}")


def test_what_the_hub_refuses(zinc: Zinc, hub: Hub) -> None:
    failed(zinc("pull", "someone/none"), 1, "no repository someone/none", "check the name")
    failed(zinc("pull", "someone/text"), 1, "has no GGUF file")
    failed(zinc("pull", f"{REPO}:Q2_K"), 1, "has no Q2_K; it has Q4_K_M, Q8_0")
    failed(zinc("pull", "qwen3-8"), 2, "is no known model", "did you mean qwen3-8b")
    failed(zinc("pull", f"{REPO}:Q4 K"), 2, "behind the colon stands a format")
    failed(zinc("pull", f"{REPO}:Q8_0", HF_HUB_OFFLINE="1"), 1, "not in the cache", "HF_HUB_OFFLINE")
    failed(zinc("run", "a", "-m", "x.gguf", "-hf", REPO), 2, "two models given")
    failed(zinc("rm", "qwen3-8b"), 1, "is not downloaded")
    hub.slow_down = True
    failed(zinc("pull", f"{REPO}:Q8_0"), 1, "429", "try again in 1 s")


def test_a_dry_run_downloads_nothing(zinc: Zinc, tmp_path: Path) -> None:
    done = zinc("pull", REPO, "--dry-run")
    assert (done.returncode, done.stdout, blobs(tmp_path)) == (0, "", [])
    assert "story-Q4_K_M.gguf" in done.stderr


def test_a_disk_that_is_too_small(zinc: Zinc, hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from zinc_rt.hub import download
    from zinc_rt.hub.choose import RemoteFile

    monkeypatch.setattr(download.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(download.DownloadFailed, match="make room") as refused:
        download._check_room(RemoteFile("large.gguf", 1 << 60))
    assert "zinc rm" in str(refused.value)


def test_the_downloaded_file_is_a_model(zinc: Zinc) -> None:
    path = zinc("pull", f"{REPO}:Q8_0").stdout.strip()
    assert COMMIT in path
    with GGUFFile.open(path) as file:
        assert file.tensors
