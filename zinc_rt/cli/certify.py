"""`zinc certify`: whether a server gives the same bytes again, level by level."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.files import model_file, write_file
from zinc_rt.cli.terminal import say, write_table
from zinc_rt.errors import EXIT_INTERRUPTED, UsageError

if TYPE_CHECKING:
    from zinc_rt.certify.ladder import LevelResult

Urls = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[URL]...",
        help="Addresses of servers, as http://127.0.0.1:8080. Several are compared with the first one.",
        show_default=False,
    ),
]
Compare = Annotated[
    bool,
    typer.Option(
        "--compare", help="The arguments are two reports (--output); compare them, ask nothing.", show_default=False
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option("--name", metavar="MODEL", help="The model's name. Default: the first it lists.", show_default=False),
]
Key = Annotated[
    str | None, typer.Option("--api-key", metavar="KEY", help="The key that the servers ask for.", show_default=False)
]
Load = Annotated[
    int, typer.Option("--load", metavar="N", min=2, max=256, help="Requests at once, at the most, on level 1.")
]
Repeats = Annotated[int, typer.Option("--repeats", metavar="N", min=1, max=100, help="Repeats on level 0.")]
MaxTokens = Annotated[int, typer.Option("--max-tokens", metavar="N", min=1, max=4096, help="Tokens of an answer.")]
Evict = Annotated[
    int,
    typer.Option("--evict", metavar="N", min=0, max=1000, help="Long prompts that push prefixes out of the cache."),
]
Machine = Annotated[
    str,
    typer.Option(
        "--machine", metavar="TEXT", help="What the report says the servers run on; level 4 compares two of these."
    ),
]
Endpoint = Annotated[
    bool,
    typer.Option("--completions", help="Ask for completions. Default: chats, where answered.", show_default=False),
]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=1, max=86400, help="That one answer may take.")
]
ReportFile = Annotated[
    Path | None, typer.Option("--output", metavar="FILE", help="Write the report as JSON.", show_default=False)
]
PageFile = Annotated[
    Path | None, typer.Option("--page", metavar="FILE", help="Write the report as a page.", show_default=False)
]


def certify(
    *,
    urls: Urls = None,
    compare: Compare = False,
    name: ModelName = None,
    api_key: Key = None,
    load: Load = 8,
    repeats: Repeats = 2,
    max_tokens: MaxTokens = 24,
    evict: Evict = 16,
    machine: Machine = "",
    completions: Endpoint = False,
    model: o.ModelFile = None,
    timeout: Timeout = 600.0,
    output: ReportFile = None,
    page: PageFile = None,
    debug: o.Debug = False,
) -> int:
    """Ask any OpenAI-like server whether its answers are the same bytes again.

    Level 0 repeats requests, level 1 asks beside others, level 2 in other states of the cache, level 3 compares
    servers, level 4 machines (--compare A.json B.json), level 5 checks receipts and computes them again with -m.
    Greedily and at temperature 0.9. Exit code 1 if a level that was tried does not hold.
    """
    given = urls or []
    if compare and len(given) != 2:
        raise UsageError(f"--compare takes two reports, there are {len(given)}")
    if not given:
        raise UsageError("give the address of a server, as http://127.0.0.1:8080")
    from zinc_rt.certify.comparing import FORMAT, compare_servers, read_report
    from zinc_rt.utils.installation import version_line

    try:
        if compare:
            servers = [read_report(Path(path))["servers"][0] for path in given]
        else:
            servers = [
                _climb(url, name, api_key, load, repeats, max_tokens, evict, machine, completions, model, timeout)
                for url in given
            ]
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    between = [compare_servers(servers[0], other) for other in servers[1:]]
    report = {
        "format": FORMAT,
        "tool": f"zinc {version_line()}",
        "created": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "servers": servers,
        "levels": [level.to_json() for level in between],
    }
    _write_files(report, output, page)
    levels = report["levels"] if compare else [*(one for s in servers for one in s["levels"]), *report["levels"]]
    _tell(servers, report["levels"], compare)
    return int(any(level["verdict"] == "fails" for level in levels))


def _climb(
    url: str,
    name: str | None,
    key: str | None,
    load: int,
    repeats: int,
    max_tokens: int,
    evict: int,
    machine: str,
    completions: bool,
    model: Path | None,
    timeout: float,
) -> dict[str, Any]:
    """One server's part of the report. Raises what asking it raises."""
    from zinc_rt.certify.ladder import Ladder
    from zinc_rt.certify.receipts import check_receipts, local_receipts
    from zinc_rt.certify.server import COMPLETIONS, AskedServer

    server = AskedServer.connect(url, name, key, load, timeout, COMPLETIONS if completions else None)
    ladder = Ladder(server, load, repeats, max_tokens, evict, lambda line: say(line, style="dim"))
    levels: list[LevelResult] = ladder.climb()
    local = None if model is None else local_receipts(ladder, model_file(model))
    try:
        levels.append(check_receipts(ladder, None if local is None else local.certificate))
    finally:
        if local is not None:
            local.close()
    return ladder.report(levels, machine)


def _write_files(report: dict[str, Any], output: Path | None, page: Path | None) -> None:
    from zinc_rt.certify.page import page_of

    if output is not None:
        write_file(output, json.dumps(report, ensure_ascii=False, indent=1) + "\n")
    if page is not None:
        write_file(page, page_of(report))


def _tell(servers: Sequence[dict[str, Any]], between: Sequence[dict[str, Any]], compare: bool) -> None:
    from zinc_rt.certify.page import counts, remark

    rows = []
    found = [] if compare else [(server["url"], level) for server in servers for level in server["levels"]]
    for where, level in [*found, *(("", level) for level in between)]:
        kinds = [counts(level.get(kind)) for kind in ("greedy", "sampled")]
        rows.append([where if len(servers) > 1 else "", level["level"], level["verdict"], *kinds, remark(level)])
    several = len(servers) > 1 and not compare
    heads = ("server", "level", "verdict", "greedy", "sampled", "remark")
    write_table([row if several else row[1:] for row in rows], heads if several else heads[1:])
    for server in servers:
        missing = [f"{key}: {value}" for key, value in server["offered"].items() if value not in ("offered", "taken")]
        if missing and not compare:
            say(f"{server['url']}: {', '.join(missing)}", style="dim")
