"""`zinc replay`: compute a request that a server answered again, and compare every token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.engine_options import EngineOptions, Mmproj
from zinc_rt.cli.model_session import open_model
from zinc_rt.cli.option_records import takes_records
from zinc_rt.cli.terminal import say, write
from zinc_rt.errors import EXIT_INTERRUPTED, UsageError
from zinc_rt.hub.resolve import AUTO

if TYPE_CHECKING:
    from zinc_rt.llm.model import Model
    from zinc_rt.scheduler.engine_core import EngineCore
    from zinc_rt.scheduler.messages import Event, Submit
    from zinc_rt.serving.records.record import RequestRecord
    from zinc_rt.serving.records.replay import Difference

RequestName = Annotated[
    str | None,
    typer.Argument(metavar="[ID]", help="The request's id, as its answer has it.", show_default=False),
]
Records = Annotated[
    Path,
    typer.Option("--records", metavar="FILE", help="The file that the server has as --records.", show_default=False),
]
ReceiptOnly = Annotated[
    bool,
    typer.Option("--receipt", help="Print the request's computation receipt and compute nothing.", show_default=False),
]
Opened = Annotated[
    bool,
    typer.Option(
        "--opened",
        help="Print the receipt with the tokens, seed and parameters that its digests are of.",
        show_default=False,
    ),
]
Usage = Annotated[
    bool,
    typer.Option(
        "--usage", help="Print what tenants used, a line for each day, and compute nothing.", show_default=False
    ),
]


@takes_records
def replay(
    *,
    request: RequestName = None,
    records: Records,
    receipt: ReceiptOnly = False,
    opened: Opened = False,
    usage: Usage = False,
    engine: EngineOptions,
    mmproj: Mmproj = None,
    ctx_size: o.CtxSize = None,
    debug: o.Debug = False,
) -> int:
    """Compute a served request again, and compare every token.

    Says "equal", or where the two differ first and by how much, with exit code 1. The model file must be the same one;
    the device, the number of threads and what else the server did do not matter.
    """
    from zinc_rt.serving.records.store import RecordStore

    if not records.exists():
        raise UsageError(f"{records} does not exist; give the file that the server was given as --records")
    if (request is None) != usage:
        raise UsageError("--usage is about all requests; leave out the id" if usage else "give the id of a request")
    store = RecordStore(records)
    try:
        if usage:
            for day in store.days():
                write("\t".join(map(str, day)) + "\n")
            return 0
        assert request is not None
        if receipt and not opened:
            write(json.dumps(store.receipt(request), indent=1) + "\n")
            return 0
        record = store.record(request)
        if opened:
            write(json.dumps(record.opened_receipt(), indent=1) + "\n")
            return 0
    finally:
        store.close()
    reads = None if not record.pictures else AUTO if mmproj is None else str(mmproj)
    with open_model(engine, n_ctx=ctx_size or record.least_context, mmproj=reads) as model:
        try:
            return _replay(model, record, engine.cache_dir)
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED


def _replay(model: Model, record: RequestRecord, cache_dir: Path | None) -> int:
    from zinc_rt.lang.cache import default_cache_dir
    from zinc_rt.scheduler.messages import Token
    from zinc_rt.serving.records.replay import at, check_replayable, first_difference, measured, whole

    folder = cache_dir or default_cache_dir()
    sha256 = model.file.sha256(folder)
    check_replayable(record, sha256, str(model.engine.options.kv), model.projector_sha256(folder))
    core = model.make_core()
    events = _run(core, whole(record, "replay"))
    found = first_difference(record.output, [event.token_id for event in events if isinstance(event, Token)])
    if found is None:
        write(f"equal: {len(record.output)} tokens\n")
        return 0
    _tell(model, measured(found, _run(core, at(record, found, "difference"))), len(record.output))
    return 1


def _run(core: EngineCore, request: Submit) -> list[Event]:
    """All events of one request. Raises `UsageError` where the engine refuses it."""
    from zinc_rt.scheduler.messages import Failed

    core.submit(request)
    events: list[Event] = []
    while not core.idle:
        events += core.advance()
    if events and isinstance(failed := events[-1], Failed):
        raise UsageError(f"the request cannot be computed here: {failed.message}")
    return events


def _tell(model: Model, found: Difference, n_tokens: int) -> None:
    write(f"different from token {found.position + 1} of {n_tokens} on\n")
    for name, token, logprob in (
        ("recorded", found.recorded, found.logprob_recorded),
        ("replayed", found.replayed, found.logprob_replayed),
    ):
        text = "the end" if token is None else f"token {token} {model.detokenize([token])!r}"
        chance = "" if logprob is None else f", log-probability {logprob:.6f}"
        write(f"{name}: {text}{chance}\n")
    say("the release, the model or the hardware is another one; zinc check tests the hardware")
