"""The chat page's files: what is sent, and with which policy. `test_page_browser` uses it in a browser."""

from __future__ import annotations

import asyncio
import re
from importlib.resources import files

from tests.serving.api.conftest import MakeBench
from zinc_rt.serving.api.page import FILES


def test_files_and_policy(bench: MakeBench) -> None:
    async def test() -> None:
        http = bench().http
        for path, (name, kind) in FILES.items():
            answer = await http.get(path)
            assert answer.status_code == 200
            assert answer.headers["content-type"].encode() == kind
            assert answer.content == (files("zinc_rt.serving") / "page" / name).read_bytes()
            policy = dict(part.split(None, 1) for part in answer.headers["content-security-policy"].split("; "))
            assert policy["default-src"] == "'none'"
            assert set(policy.values()) == {"'none'", "'self'", "'self' data:"}
            assert policy["img-src"] == "'self' data:"
            assert answer.headers["x-content-type-options"] == "nosniff"
            head = await http.head(path)
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers == answer.headers
        assert (await http.post("/")).status_code == 405
        assert (await http.head("/v1/models/story")).status_code == 200
        assert (await http.head("/v1/chat/completions")).status_code == 405

    asyncio.run(test())


def test_every_file_of_the_folder_is_sent_and_the_page_is_small() -> None:
    folder = files("zinc_rt.serving") / "page"
    contents = {entry.name: entry.read_bytes() for entry in folder.iterdir()}
    assert contents.keys() == {name for name, _ in FILES.values()}
    assert sum(map(len, contents.values())) <= 80 * 1024


def test_no_text_becomes_markup() -> None:
    for name in (name for name, _ in FILES.values() if name.endswith(".js")):
        source = (files("zinc_rt.serving") / "page" / name).read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", source)
        assert name == "store.js" or "localStorage" not in source
