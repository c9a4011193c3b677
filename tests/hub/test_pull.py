"""`zinc pull`, `list`, `rm`, `-hf` and names in `-m`, against a server that speaks the hub's protocol."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants
from PIL import Image

import zinc_rt
from tests.cli.tiny import write_tiny_model
from tests.hub.conftest import REPO, STORY, Zinc, blobs, failed
from tests.hub.server import COMMIT, Hub
from tests.vision import towers
from zinc_rt.cli import terminal
from zinc_rt.gguf import GGUFFile
from zinc_rt.hub import client, download
from zinc_rt.hub.errors import HubError, UnknownModel
from zinc_rt.hub.known import KNOWN

LARGE = bytes(range(256)) * 12_000
TRIES = 6


def test_from_a_name_to_text(zinc: Zinc, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pulled = zinc("pull", f"{REPO}:q8_0")
    assert pulled.code == 0, pulled.err
    path = Path(pulled.out.strip())
    assert path.read_bytes() == STORY
    assert COMMIT in str(path)
    assert f"{REPO}: story-Q8_0.gguf" in pulled.err
    assert "license mit" in pulled.err
    assert "of memory with 4096 positions" in pulled.err
    assert not [request for request in hub.asked("/cdn/") if "authorization" in request[2]]
    with GGUFFile.open(path) as file:
        assert file.tensors

    listed = json.loads(zinc("list", "--json").out)
    about = {"name": f"{REPO}:Q8_0", "repo": REPO, "quant": "Q8_0", "bytes": len(STORY), "paths": [str(path)]}
    assert listed == [about | {"mmproj": None}]

    hub.requests.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    shown = zinc("show", "--json", "-m", f"{REPO}:Q8_0")
    assert json.loads(shown.out)["path"] == str(path)
    said = zinc("run", "Once", "-n", "4", "--seed", "1", "-hf", f"{REPO}:Q8_0", "--kernels", "reference")
    again = zinc("run", "Once", "-n", "4", "--seed", "1", "--kernels", "reference")
    assert (said.code, said.out) == (0, again.out)
    assert hub.requests == []  # what is there is not asked for

    removed = zinc("rm", f"{REPO}:Q8_0", "--yes")
    assert removed.code == 0
    assert f"{len(STORY) / (1 << 20):.1f} MiB" in removed.out
    assert (zinc("list", "--json").out, blobs(tmp_path)) == ("[]\n", [])


def test_only_the_model_is_asked_for(zinc: Zinc, hub: Hub, tmp_path: Path) -> None:
    assert zinc("pull", f"{REPO}:Q8_0").code == 0
    resolved = f"/{REPO}/resolve/{COMMIT}/story-Q8_0.gguf"
    assert {path for _, path, _ in hub.requests if not path.startswith("/cdn/")} == {f"/api/models/{REPO}", resolved}
    assert [path.name for path in tmp_path.iterdir()] == ["hub"]


def test_a_transfer_that_breaks_off_goes_on(zinc: Zinc, hub: Hub, tmp_path: Path) -> None:
    hub.files[REPO]["large-Q6_K.gguf"] = LARGE
    hub.cuts = [0, 300_000, *[0] * TRIES]
    failed(zinc("pull", f"{REPO}:Q6_K"), 1, "does not answer", "HF_ENDPOINT", "293.0 KiB of 2.9 MiB are kept")
    (part,) = blobs(tmp_path)
    assert part.name.endswith(".incomplete")
    assert part.read_bytes() == LARGE[:300_000]
    assert zinc("list", "--json").out == "[]\n"
    failed(zinc("run", "Once", "-m", f"{REPO}:Q6_K"), 1, "is not downloaded: zinc pull")
    hub.cuts = [0, 200_000, 100_000]
    hub.requests.clear()
    path = Path(zinc("pull", f"{REPO}:Q6_K").out.strip())
    assert path.read_bytes() == LARGE
    ranges = [request[2].get("range") for request in hub.asked("/cdn/")[1:]]
    assert ranges == ["bytes=300000-", "bytes=500000-", "bytes=600000-"]


def test_a_server_without_ranges_sends_all_again(zinc: Zinc, hub: Hub) -> None:
    hub.files[REPO]["large-Q6_K.gguf"] = LARGE
    hub.no_ranges = True
    hub.cuts = [0, 300_000, *[0] * TRIES]
    assert zinc("pull", f"{REPO}:Q6_K").code == 1
    hub.cuts = []
    assert Path(zinc("pull", f"{REPO}:Q6_K").out.strip()).read_bytes() == LARGE


def test_damaged_bytes_are_not_kept(zinc: Zinc, hub: Hub, tmp_path: Path) -> None:
    hub.damaged = True
    failed(zinc("pull", f"{REPO}:Q8_0"), 1, "arrived damaged", "SHA-256", "pull it again")
    assert blobs(tmp_path) == []
    hub.damaged = False
    assert zinc("pull", f"{REPO}:Q8_0").code == 0


def test_the_listing_says_which_checksum_counts(zinc: Zinc, hub: Hub, tmp_path: Path) -> None:
    """Neither an ETag that fits the bytes nor one that has no form of a checksum replaces it."""
    hub.digests["story-Q8_0.gguf"] = hashlib.sha256(b"other").hexdigest()
    for etag in ("", "abc"):
        hub.etag = etag
        failed(zinc("pull", f"{REPO}:Q8_0"), 1, "arrived damaged")
    assert blobs(tmp_path) == []
    hub.digests["story-Q8_0.gguf"] = hashlib.sha1(b"blob %d\0" % len(STORY) + STORY).hexdigest()
    assert zinc("pull", f"{REPO}:Q8_0").code == 0  # git's own, of a file that is no large one
    hub.digests["story-Q4_K_M.gguf"] = ""
    failed(zinc("pull", f"{REPO}:Q4_K_M"), 1, "no checksum of 'story-Q4_K_M.gguf'")


def test_an_etag_names_no_file(zinc: Zinc, hub: Hub, tmp_path: Path) -> None:
    hub.etag = "../../../../.profile"
    path = Path(zinc("pull", f"{REPO}:Q8_0").out.strip())
    assert path.resolve().name == hashlib.sha256(STORY).hexdigest()
    assert not [*tmp_path.rglob(".profile*")]
    assert [each.name for each in tmp_path.iterdir()] == ["hub"]


def test_what_stands_where_a_model_belongs_is_looked_at(zinc: Zinc, hub: Hub, tmp_path: Path) -> None:
    """A file of another content in the snapshot is no download, nor is a link to somewhere else."""
    place = tmp_path / "hub" / f"models--{REPO.replace('/', '--')}" / "snapshots" / COMMIT / "story-Q8_0.gguf"
    place.parent.mkdir(parents=True)
    for stale in (b"x" * len(STORY), None):
        place.unlink(missing_ok=True)
        place.write_bytes(stale) if stale else place.symlink_to(tmp_path)
        path = download.download(client.Client(), *_story(hub))
        assert path == place
        assert path.read_bytes() == STORY


def _story(hub: Hub) -> tuple[download.Repository, list[download.RemoteFile]]:
    file = download.RemoteFile("story-Q8_0.gguf", len(STORY), hashlib.sha256(STORY).hexdigest())
    return download.Repository(REPO, COMMIT, [file]), [file]


def test_rm_keeps_to_the_cache(zinc: Zinc, hub: Hub, tmp_path: Path) -> None:
    assert zinc("pull", f"{REPO}:Q8_0").code == 0
    (blob,) = blobs(tmp_path)
    precious = tmp_path / "precious.gguf"
    precious.write_bytes(STORY)
    link = tmp_path / "hub" / f"models--{REPO.replace('/', '--')}" / "snapshots" / COMMIT / "story-Q6_K.gguf"
    for target in (precious, Path("../../../../precious.gguf")):
        link.symlink_to(target)
        removed = zinc("rm", f"{REPO}:Q6_K", "-y")
        assert (removed.code, link.is_symlink(), precious.exists()) == (0, False, True)
        assert "0 B" in removed.out
    assert blob.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"rfilename": "../../x.gguf"}, {"rfilename": "/etc/x.gguf"}, {"rfilename": "a/../../x.gguf"},
        {"rfilename": "a//x.gguf"}, {"rfilename": "./x.gguf"}, {"rfilename": "a\\..\\x.gguf"},
        {"rfilename": "\x1b[2Jx.gguf"}, {"rfilename": "x\0.gguf"}, {"rfilename": f"{'x' * 300}.gguf"},
        {"rfilename": 7}, {"rfilename": None}, {"size": -1}, {"size": 0}, {"size": None}, {"size": "many"},
        {"size": 1 << 62}, {"size": 1e300}, {"lfs": []}, {"lfs": {"sha256": 3}}, {"lfs": {}},
        {"lfs": {"sha256": "../../../../.profile"}},
    ],
    ids=str,
)  # fmt: skip
def test_hostile_files_in_a_listing(zinc: Zinc, hub: Hub, tmp_path: Path, change: dict[str, object]) -> None:
    file = {"rfilename": "x.gguf", "size": 9, "lfs": {"sha256": "0" * 64, "size": 9, "pointerSize": 1}, **change}
    hub.listing = json.dumps({"sha": COMMIT, "siblings": [file]}).encode()
    failed(zinc("pull", REPO), 1)
    assert not [*tmp_path.rglob("*.gguf"), *tmp_path.rglob(".profile*")]
    assert not hub.asked("/cdn/")


@pytest.mark.parametrize(
    "body",
    [
        b"<html><body>Sign in to the network", b"", b"null", b"7", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000,
        b'{"sha": null, "siblings": []}', b'{"sha": "../..", "siblings": []}', b'{"sha": "' + b"0" * 40 + b'"}',
        b'{"sha": "' + b"0" * 40 + b'", "siblings": {"a": 1}}', b'{"siblings": [], "sha": 12345678901234567890123}',
        b'{"sha": "' + b"0" * 40 + b'", "siblings": [null]}',
        b'{"sha": "' + b"0" * 40 + b'", "siblings": [], "cardData": [1]}',
    ],
    ids=lambda body: body[:40].decode("latin-1"),
)  # fmt: skip
def test_listings_without_sense(zinc: Zinc, hub: Hub, body: bytes) -> None:
    hub.listing = body
    failed(zinc("pull", REPO), 1, "127.0.0.1", REPO)


def test_endless_answers(zinc: Zinc, hub: Hub, tmp_path: Path) -> None:
    """Each is read up to what it may have at the most; sockets hold some more."""
    hub.endless = "listing"
    failed(zinc("pull", REPO), 1, "more than 16777216 bytes")
    assert hub.sent < 64 << 20
    hub.endless, hub.sent = "file", 0
    failed(zinc("pull", f"{REPO}:Q8_0"), 1, "more than", "story-Q8_0.gguf")
    assert hub.sent < 64 << 20
    assert sum(path.stat().st_size for path in blobs(tmp_path)) <= len(STORY)


def test_mute_servers(zinc: Zinc, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of time for each answer, and a word before it is reached."""
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.5)
    monkeypatch.setattr(download, "_TRIES", 0)
    monkeypatch.setattr(client, "SILENCE", 0.02)
    hub.mute = "listing"
    silent = zinc("pull", f"{REPO}:Q8_0")
    failed(silent, 1, "nothing came for 0.5 s")
    assert silent.err.count("waiting for 127.0.0.1") == 1
    hub.mute = "file"
    silent = zinc("pull", f"{REPO}:Q8_0")
    failed(silent, 1, "localhost does not answer")
    assert "waiting for localhost" in silent.err


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_the_part_alone(
    zinc: Zinc, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Nothing in the temporary folder, one part in the cache, and a word about it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    arrived = download._Arrival.add

    def add(self: download._Arrival, chunk: bytes) -> None:
        arrived(self, chunk)
        if self.size > 300_000:
            os.kill(os.getpid(), number)

    hub.files[REPO]["large-Q6_K.gguf"] = LARGE
    monkeypatch.setattr(download._Arrival, "add", add)
    if number == signal.SIGTERM:
        with pytest.raises(SystemExit) as stopped:
            zinc("pull", f"{REPO}:Q6_K")
        assert stopped.value.code == 143
    else:
        done = zinc("pull", f"{REPO}:Q6_K")
        assert done.code == 130
        assert re.search(rf"stopped; \d+\.\d KiB of 2.9 MiB are kept, and `zinc pull {REPO}:Q6_K` goes on", done.err)
    (part,) = blobs(tmp_path)
    assert LARGE.startswith(part.read_bytes())
    assert part.stat().st_size > 200_000
    assert [*folder.iterdir()] == []


def test_tokens_stay_with_the_hub(zinc: Zinc, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = "hf_secret"
    failed(zinc("pull", f"{REPO}:Q8_0"), 1, "no repository", "HF_TOKEN")
    monkeypatch.setenv("HF_TOKEN", "hf_sécret")
    failed(zinc("pull", f"{REPO}:Q8_0"), 1, "HF_TOKEN", "characters that no token has")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert zinc("pull", f"{REPO}:Q8_0").code == 0
    assert not [request for request in hub.asked("/cdn/") if "authorization" in request[2]]
    hub.gated.add(REPO)
    failed(zinc("pull", f"{REPO}:Q4_K_M"), 1, "terms accepted", f"{hub.url}/{REPO}")


def test_redirects(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    """No step from an address with TLS to one without; no token for another host; no endless round."""
    import httpx2

    seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        if request.url.host == "elsewhere.test":
            return httpx2.Response(200, content=iter([b"{}"]))
        where = {"down": "http://hub.test/x", "out": "https://elsewhere.test/x", "round": "/api/models/a/round"}
        return httpx2.Response(302, headers={"Location": where[request.url.path.rpartition("/")[2]]})

    monkeypatch.setattr(constants, "ENDPOINT", "https://hub.test")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    asking = client.Client()
    asking._http = httpx2.Client(transport=httpx2.MockTransport(answer))
    with (
        pytest.raises(client.HubError, match=r"hub.test points to an address without TLS, hub.test"),
        asking.about("a/down"),
    ):
        pass
    assert [request.url.scheme for request in seen] == ["https"]
    with pytest.raises(client.HubError, match="from address to address"), asking.about("a/round"):
        pass
    assert len(seen) < 20
    with asking.about("a/out") as answered:
        assert answered.read(9, float("inf")) == b"{}"
    assert ["Authorization" in request.headers for request in seen[-2:]] == [True, False]


def test_what_the_hub_refuses(zinc: Zinc, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    failed(zinc("pull", "someone/none"), 1, "no repository someone/none", "check the name")
    failed(zinc("pull", "someone/text"), 1, "has no GGUF file")
    failed(zinc("pull", f"{REPO}:Q2_K"), 1, "has no Q2_K; it has Q4_K_M, Q8_0")
    failed(zinc("pull", "qwen3-8"), 2, "is no known model", "did you mean qwen3-8b", "zinc pull qwen3-8b")
    failed(zinc("pull", f"{REPO}:Q4 K"), 2, "behind the colon stands a format")
    failed(zinc("run", "a", "-m", "x.gguf", "-hf", REPO), 2, "two models given")
    gone = zinc("rm", "qwen3-8b")
    failed(gone, 1, "qwen3-8b is not downloaded; `zinc list` shows what is")
    assert "pull" not in gone.err
    hub.slow_down = True
    failed(zinc("pull", f"{REPO}:Q8_0"), 1, "429", "try again in 1 s")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    failed(zinc("pull", f"{REPO}:Q8_0"), 1, "not in the cache", "HF_HUB_OFFLINE")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for endpoint in ("nonsense", "http://[", "ftp://x", "http://127.0.0.1:1"):
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        failed(zinc("pull", REPO), 1, "HF_ENDPOINT")
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv("HTTPS_PROXY", "nonsense://x")
    failed(zinc("pull", REPO), 1, "HTTPS_PROXY")


def test_a_dry_run_downloads_nothing(zinc: Zinc, tmp_path: Path) -> None:
    done = zinc("pull", REPO, "--dry-run")
    assert (done.code, done.out, blobs(tmp_path)) == (0, "", [])
    assert "story-Q4_K_M.gguf" in done.err


def test_a_model_that_cannot_run_is_not_downloaded_unasked(
    zinc: Zinc, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = write_tiny_model(tmp_path / "foreign.gguf", architecture="weird").read_bytes()
    hub.files["someone/weird"] = {"weird-F16.gguf": foreign}
    failed(zinc("pull", "someone/weird"), 1, "cannot run it", "weird", "--force")
    with pytest.raises(HubError, match="force=True"):
        zinc_rt.pull("someone/weird")
    assert blobs(tmp_path) == []
    monkeypatch.setattr("zinc_rt.cli.pull.is_terminal", lambda stream: stream is sys.stdin)
    refused = zinc("pull", "someone/weird")  # nobody types yes
    assert (refused.code, refused.out, blobs(tmp_path)) == (0, "", [])
    assert "download it all the same? [y/N]" in refused.err
    assert Path(zinc("pull", "someone/weird", "--force").out.strip()).read_bytes() == foreign


def test_from_python(hub: Hub, tmp_path: Path) -> None:
    said: list[str] = []
    seen: list[tuple[int, int]] = []
    with pytest.raises(HubError, match=r"zinc pull someone/story-GGUF \(in Python zinc_rt.pull"):
        zinc_rt.load(REPO)
    path = zinc_rt.pull(REPO, notify=said.append, progress=lambda *each: seen.append(each))
    assert path.read_bytes() == STORY + b"\0"
    assert said == [f"{REPO}: story-Q4_K_M.gguf, {len(STORY) / (1 << 20):.1f} MiB, license mit"]
    assert seen[0] == (0, len(STORY) + 1)
    assert seen[-1] == (len(STORY) + 1,) * 2
    assert len(seen) > 20  # tens of KiB at a time
    with zinc_rt.load(REPO, kernels="reference") as model:
        assert model.name == "zinc-story"
    hub.requests.clear()
    assert zinc_rt.pull(f"hf.co/{REPO}:Q4_K_M") == path
    assert hub.requests == []
    with pytest.raises(zinc_rt.UsageError, match="name is 7"):
        zinc_rt.pull(7)  # type: ignore[arg-type]
    with pytest.raises(UnknownModel, match=r"did you mean qwen3-0.6b, .*zinc pull qwen3-0.6b"):
        zinc_rt.load("qwen3")


def test_a_disk_that_is_too_small(zinc: Zinc, hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is there already needs no room, and nothing is asked for beside the file."""
    repository, (file,) = _story(hub)
    part = tmp_path / "hub" / f"models--{REPO.replace('/', '--')}" / "blobs" / f"{file.digest}.zinc.incomplete"
    part.parent.mkdir(parents=True)
    part.write_bytes(STORY[:1_000_000])
    missing = len(STORY) - 1_000_000
    for free, fits in ((missing - 1, False), (missing, True)):
        usage = type("Usage", (), {"free": free})
        monkeypatch.setattr(download.shutil, "disk_usage", lambda _, usage=usage: usage)
        if fits:
            assert download.download(client.Client(), repository, [file]).read_bytes() == STORY
        else:
            with pytest.raises(download.HubError, match=r"make room.*zinc rm"):
                download.download(client.Client(), repository, [file])


def test_the_bar_of_a_download(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes, speed and time left of every piece; the host's name while nothing comes."""
    import io

    from rich.console import Console

    out = io.StringIO()
    monkeypatch.setattr(
        terminal, "stderr_console", lambda: Console(file=out, force_terminal=True, width=100, color_system=None)
    )
    now = iter(range(1000))
    monkeypatch.setattr(terminal.time, "perf_counter", lambda: next(now))
    with terminal.LoadingBar("pulling", download=True) as bar:
        bar.wait("hub.test")
        bar._bar.refresh()
        for done in range(10):
            bar.show(done << 20, 20 << 20)
        bar._bar.refresh()
    assert "waiting for hub.test" in out.getvalue()
    last = [line for line in re.split(r"[\r\n]", out.getvalue()) if "pulling" in line][-1]
    assert re.search(r"9\.0/20\.0 MiB\s+[\d.]+ \wiB/s\s+\d:\d\d:\d\d", last), last


def test_lists_on_terminals_of_80_columns(zinc: Zinc, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each model; what does not fit is left out, and named."""
    zinc("pull", f"{REPO}:Q8_0")
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: stream is sys.stdout)
    for columns, command, left_out in (
        ("80", ("list", "--known"), "format, repository"),
        ("80", ("list",), "file"),
        ("300", ("list", "--known"), ""),
        ("300", ("list",), ""),
    ):
        monkeypatch.setenv("COLUMNS", columns)
        shown = zinc(*command)
        lines = shown.out.splitlines()
        assert len(lines) == 1 + (len(KNOWN) if "--known" in command else 1)
        assert max(map(len, lines)) <= int(columns)
        assert (f"a wider terminal shows also: {left_out}" in shown.err) == bool(left_out)


def test_a_model_that_reads_pictures(zinc: Zinc, hub: Hub, tmp_path: Path) -> None:
    with zinc_rt.load() as model:
        tower = towers.write(tmp_path / "tower.gguf", "pixtral", n_out=model.info.n_embd).path
    hub.files[REPO] |= {"mmproj-F32.gguf": b"x" * 9, "mmproj-F16.gguf": tower.read_bytes()}
    picture = tmp_path / "a.png"
    Image.new("RGB", (16, 16), "red").save(picture)
    planned = zinc("pull", f"{REPO}:Q8_0", "--dry-run")
    assert f", and for pictures mmproj-F16.gguf, {tower.stat().st_size / 1024:.1f} KiB" in planned.err
    assert zinc("pull", f"{REPO}:Q8_0", "--no-mmproj").code == 0
    assert not [path for _, path, _ in hub.requests if "mmproj" in path]
    assert zinc("rm", f"{REPO}:Q8_0", "-y").code == 0
    pulled = zinc("pull", f"{REPO}:Q8_0")
    assert pulled.code == 0, pulled.err
    path = Path(pulled.out.strip())
    assert path.name == "story-Q8_0.gguf"
    (listed,) = json.loads(zinc("list", "--json").out)
    assert Path(listed["mmproj"]).name == "mmproj-F16.gguf"
    assert " pictures " in zinc("list").out
    said = zinc("run", "What?", "-n", "4", "-m", f"{REPO}:Q8_0", "--image", picture, "--kernels", "reference")
    assert said.code == 0, said.err
    assert zinc("rm", f"{REPO}:Q8_0", "-y").code == 0
    assert blobs(tmp_path) == []
