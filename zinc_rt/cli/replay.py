"""`zinc replay`: compute a request that a server answered again and compare every token; check the receipts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.engine_options import EngineOptions, Mmproj
from zinc_rt.cli.model_session import located, open_model
from zinc_rt.cli.option_records import takes_records
from zinc_rt.cli.terminal import say, write
from zinc_rt.cli.verbosity import Verbosity
from zinc_rt.errors import EXIT_INTERRUPTED, UsageError
from zinc_rt.hub.resolve import AUTO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zinc_rt.llm.model import Model
    from zinc_rt.serving.records.chain import ChainCheck
    from zinc_rt.serving.records.record import RequestRecord
    from zinc_rt.serving.records.replay import Difference
    from zinc_rt.serving.records.store import RecordStore

_SHOWN: Final = 20
"""Faults of a chain that are written."""

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

Chain = Annotated[
    bool,
    typer.Option(
        "--chain",
        help="Check the chain of all receipts, its signatures, and what is kept against it; compute nothing.",
        show_default=False,
    ),
]
PublicKey = Annotated[
    Path | None,
    typer.Option(
        "--public-key",
        metavar="FILE",
        help="The server's public key (receipts.pub): entries that it did not sign are faults.",
        show_default=False,
    ),
]
Adapters = Annotated[
    list[Path] | None,
    o.option(
        o.MODEL,
        "--lora",
        metavar="FILE",
        help="An adapter that the answer has; once for each. Default: NAME.gguf beside the model's file.",
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
    chain: Chain = False,
    public_key: PublicKey = None,
    engine: EngineOptions,
    mmproj: Mmproj = None,
    lora: Adapters = None,
    ctx_size: o.CtxSize = None,
    debug: o.Debug = False,
) -> int:
    """Compute a served request again, and compare every token.

    Says "equal", or where the two differ first and by how much, with exit code 1. The model file must be the same one;
    the device, the number of threads and what else the server did do not matter. Before, the record is compared with
    its entry in the chain of receipts; --chain checks the whole chain.
    """
    from zinc_rt.serving.records.store import RecordStore

    if not records.exists():
        raise UsageError(f"{records} does not exist; give the file that the server was given as --records")
    if usage and chain:
        raise UsageError("--usage and --chain are given; give one of them")
    if (request is None) != (usage or chain):
        about_all = f"--{'usage' if usage else 'chain'} is about all requests; leave out the id"
        raise UsageError(about_all if usage or chain else "give the id of a request")
    key = None
    if public_key is not None:
        from zinc_rt.serving.records.signing import key_id_of

        key = key_id_of(public_key)
    store = RecordStore(records)
    try:
        if chain:
            return _check_whole_chain(store, key)
        if usage:
            for day in store.days():
                write("\t".join(map(str, day)) + "\n")
            return 0
        assert request is not None
        if receipt or opened:
            entry = store.entry(request)
            made = store.record(request).opened_receipt() if opened else store.receipt(request)
            write(json.dumps(made | ({} if entry is None else {"entry": entry}), indent=1) + "\n")
            return 0
        record = store.record(request)
        if not _check_entry(store, request, key):
            return 1
    finally:
        store.close()
    if record.adapters:
        engine = located(engine, Verbosity.VERBOSE)
        record = _with_files(record, lora or _beside(engine.model, record), engine.cache_dir)
    adapters = [(one.name, 0.0, one.name) for one in record.adapters]
    reads = None if not record.pictures else AUTO if mmproj is None else str(mmproj)
    with open_model(engine, n_ctx=ctx_size or record.least_context, mmproj=reads, lora=adapters) as model:
        try:
            return _replay(model, record, engine.cache_dir)
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED


def _check_whole_chain(store: RecordStore, key: str | None) -> int:
    """Say what is wrong with the chain, or that nothing is; the exit code."""
    from zinc_rt.serving.records.chain import check_chain

    wrong: list[str] = []

    def entries() -> Iterator[dict[str, Any]]:
        for entry in store.chain():
            if (found := store.mismatch(entry)) is not None:
                wrong.append(f"entry {entry['manifest'].get('number')}: {found}")
            yield entry

    found = check_chain(entries(), key=key)
    faults = [*found.faults, *wrong]
    for fault in faults[:_SHOWN]:
        write(f"{fault}\n")
    if len(faults) > _SHOWN:
        write(f"and {len(faults) - _SHOWN} more\n")
    if faults:
        return 1
    write(f"the chain holds: {found.entries} entries, {signatures(found)}; the last hash is {found.tip}\n")
    return 0


def signatures(found: ChainCheck) -> str:
    """What is known of the signatures, in words."""
    parts = [f"{found.signed} signed by {' and '.join(found.keys)}"] if found.signed else []
    parts += [f"{found.unsigned} not signed"] if found.unsigned else []
    parts += [f"{found.unchecked} signatures not checked (pip install 'zinc-rt[receipts]')"] if found.unchecked else []
    return ", ".join(parts) or "none to check"


def _check_entry(store: RecordStore, request: str, key: str | None) -> bool:
    """Whether a record is what its entry of the chain binds; says why not."""
    from zinc_rt.serving.records.chain import check_chain

    entry = store.entry(request)
    if entry is None:  # of a release without a chain
        return True
    faults = [*check_chain([entry], None, key).faults, *filter(None, [store.mismatch(entry)])]
    for fault in faults:
        write(f"{fault}\n")
    return not faults


def _beside(model: Path | None, record: RequestRecord) -> list[Path]:
    """The files beside a model's that have the names of a record's adapters."""
    if model is None:
        return []
    return [path for one in record.adapters if (path := model.parent / f"{Path(one.name).name}.gguf").exists()]


def _with_files(record: RequestRecord, files: list[Path], cache_dir: Path | None) -> RequestRecord:
    """The record with the files of its adapters as their names. Raises `NotReplayable`, `GGUFError`."""
    from zinc_rt.gguf import GGUFFile
    from zinc_rt.lang.cache import default_cache_dir
    from zinc_rt.serving.records.replay import with_adapters_here

    here = {}
    for path in files:
        with GGUFFile.open(path) as file:
            here[file.sha256(cache_dir or default_cache_dir())] = str(path)
    return with_adapters_here(record, here)


def _replay(model: Model, record: RequestRecord, cache_dir: Path | None) -> int:
    from zinc_rt.lang.cache import default_cache_dir
    from zinc_rt.scheduler.messages import Token
    from zinc_rt.serving.records.replay import answered, at, check_replayable, first_difference, measured, whole

    folder = cache_dir or default_cache_dir()
    sha256 = model.file.sha256(folder)
    check_replayable(record, sha256, str(model.engine.options.kv), model.projector_sha256(folder))
    core = model.make_core()
    tokens = [event for event in answered(core, whole(record, "replay")) if isinstance(event, Token)]
    found = first_difference(record.output, [token.token_id for token in tokens])
    if found is None:
        for at_token, (old, token) in enumerate(zip(record.logprobs, tokens)):
            if token.logprob is None or old.hex() != token.logprob.hex():
                write(f"different log-probability at token {at_token + 1}: {old!r}, now {token.logprob!r}\n")
                return 1
        also = " and their log-probabilities" if record.logprobs else ""
        write(f"equal: {len(record.output)} tokens{also}\n")
        return 0
    _tell(model, measured(found, answered(core, at(record, found, "difference"))), len(record.output))
    return 1


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
