"""Models larger than memory: the same bits whatever is in memory, in no more of it than was allowed, also where the
disk fails.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import zinc_rt
from tests.backends.cpu.both import assert_same
from tests.helpers import LLAMA, QWEN3, Spec, T, engine_for, random_tokens, run_tokens, soon, write_model
from tests.models.families import gemma4, gpt_oss, qwen_moe
from tests.models.families.build import (
    N_VOCAB,
    Case,
    attention_shapes,
    base_keys,
    ffn_shapes,
    model_shapes,
    moe_shapes,
    norm_shapes,
    write_case,
)
from zinc_rt.backends.base import StreamedWeights
from zinc_rt.backends.cpu.backend import CpuBackend, CpuLoweredGraph
from zinc_rt.backends.cpu.streaming import WeightStream
from zinc_rt.backends.cpu.tile_file import MAX_AGE, TileFolder
from zinc_rt.engine.engine import Engine, Options, SequenceChunk
from zinc_rt.engine.streamed import speed_of
from zinc_rt.errors import BackendError, UsageError
from zinc_rt.gguf import GGUFFile, GGUFWriter, ValueType
from zinc_rt.llm.load import built_in_model
from zinc_rt.mem import disk
from zinc_rt.mem.disk import PAGE, ReadFailed
from zinc_rt.mem.errors import MemoryPlanError
from zinc_rt.mem.plan import HEADROOM
from zinc_rt.models import define
from zinc_rt.models.hidden import hidden_states
from zinc_rt.scheduler.engine_core import EngineCore
from zinc_rt.scheduler.messages import Failed, Finished, Submit
from zinc_rt.scheduler.options import CoreVocabulary

LENGTH = 24
SIZES: dict[str, Any] = {"n_ctx": 64, "n_batch": 16, "n_slots": 2}


def _experts(name: str) -> Case:
    """Some layers of experts of several pages, whose borders lie within pages; a shared expert, or biases."""
    if name == "gpt-oss":
        case = gpt_oss.case(1)
        keys = case.keys | {"embedding_length": 128, "expert_feed_forward_length": 160}
        wide = {64: 128, 32: 160}
        shapes = {
            part: tuple(wide.get(n, n) for n in shape) if "attn_sinks" not in part and "attn_k" not in part else shape
            for part, shape in case.shapes.items()
        }
        shapes |= {
            part: (shape[0], 128) for part, shape in case.shapes.items() if re.search(r"attn_[qkv]\.weight", part)
        }
        shapes |= {part: shape for part, shape in case.shapes.items() if re.search(r"attn_[qkv]\.bias", part)}
        return replace(case, keys=keys, shapes=shapes)
    keys = base_keys(
        n_layers=3, n_embd=256, heads=4, kv_heads=4, head_dim=16, n_ff=96, expert_count=12, expert_used_count=2,
        expert_feed_forward_length=160, expert_shared_feed_forward_length=96,
    )  # fmt: skip
    block = (
        norm_shapes(256, "attn_norm", "ffn_norm")
        | attention_shapes(256, 4, 4, 16, biases=True)
        | moe_shapes(256, 160, 12)
        | ffn_shapes(256, 96, suffix="_shexp")
        | {"ffn_gate_inp_shexp.weight": (256,)}
    )
    return Case("qwen2moe", keys, model_shapes(256, [block] * 3), qwen_moe.forward, seed=3)


MODELS: dict[str, Callable[[Path], Path]] = {
    "dense-q4_k_m": lambda path: write_model(
        path,
        replace(LLAMA, weights=T.Q4_K, formats={"down": T.Q6_K, "output": T.Q6_K}, n_embd=256, n_ff=512, head_dim=64,
                n_layers=4),
    ).path,
    "dense-tied-q8_0": lambda path: write_model(
        path, replace(QWEN3, weights=T.Q8_0, tied=True, n_embd=128, n_ff=384, n_layers=3)
    ).path,
    "experts-q8_0": lambda path: write_case(path, _experts("qwen2moe"), T.Q8_0).path,
    "experts-with-biases": lambda path: write_case(path, _experts("gpt-oss"), T.MXFP4).path,
    "fused-experts": lambda path: write_case(path, gemma4.CASES["gemma4-experts"], T.Q8_0).path,
}  # fmt: skip
SOON = ("dense-tied-q8_0", "experts-q8_0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of the files of tiles: the kernels' folder outlives the test run."""
    made = tmp_path_factory.mktemp("streamed") / "tiles"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CpuBackend, "_tile_folder", lambda _: TileFolder(made))
        yield made


@pytest.fixture(scope="module", params=soon(SOON, MODELS))
def path(request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MODELS[request.param](tmp_path_factory.mktemp("models") / f"{request.param}.gguf")


@pytest.fixture(scope="module")
def experts(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MODELS["experts-q8_0"](tmp_path_factory.mktemp("models") / "experts.gguf")


@pytest.fixture(scope="module")
def dense(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MODELS["dense-tied-q8_0"](tmp_path_factory.mktemp("models") / "dense.gguf")


def stream_of(engine: Engine) -> WeightStream:
    assert isinstance(engine.lowered, CpuLoweredGraph)
    assert engine.lowered.stream is not None
    return engine.lowered.stream


@cache
def bounds(path: Path, threads: int) -> tuple[int, int]:
    """The least memory that steps run in, and a byte less than the weights fit in."""
    with engine_for(path, threads=threads, **SIZES) as engine:
        assert engine.plan is not None
        most = engine.plan.total + HEADROOM - 1
    with engine_for(path, threads=threads, memory=most, **SIZES) as engine:
        assert engine.plan is not None
        plan = stream_of(engine).plan
        return HEADROOM + engine.plan.total - plan.resident + plan.least, most


def memory_for(path: Path, share: float, threads: int = 2) -> int:
    """Memory with a share of what may be left out of it: at 0 the least that steps run in, at 1 the weights fit."""
    least, most = bounds(path, threads)
    return int(least + share * (most - least))


def logits(path: Path, chunk: int, **options: Any) -> np.ndarray:
    tokens = random_tokens(1, LENGTH, 61)
    with engine_for(path, **{"threads": 2} | SIZES | options) as engine:
        return run_tokens(engine, engine.open_sequence(), tokens, chunk)


def test_the_same_bits(path: Path) -> None:
    """At the least memory every layer's weights give way to those of others."""
    want = logits(path, 16)
    tokens = random_tokens(1, LENGTH, 61)
    for share, threads, chunks in ((0.0, 1, (16, 1)), (0.0, 3, (7, 16)), (0.5, 3, (16,)), (0.999, 1, (7,))):
        memory = memory_for(path, share, threads)
        with engine_for(path, memory=memory, threads=threads, **SIZES) as engine:
            stream = stream_of(engine)
            assert engine.plan is not None
            assert engine.plan.total + HEADROOM <= memory
            for chunk in chunks:
                got = run_tokens(engine, engine.open_sequence(), tokens, chunk)
                assert_same(got.view(np.uint32), want.view(np.uint32), f"{share}, {threads} threads, {chunk}")
            if share == 0:  # a byte less is refused
                with pytest.raises(MemoryPlanError), engine_for(path, memory=memory - 1, threads=threads, **SIZES):
                    pass
                assert stream.counts.bytes_read > 2 * stream.plan.n_bytes


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    share=st.floats(0, 1),
    parts=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 16), st.booleans()), min_size=1, max_size=8),
)
def test_any_memory_and_any_steps(experts: Path, share: float, parts: list[tuple[int, int, bool]]) -> None:
    """Two sequences in turns, prompts and single rows, with and without logits."""
    memory = memory_for(experts, share)
    found: list[list[np.ndarray]] = []
    for options in ({}, {"memory": memory}):
        with engine_for(experts, threads=2, **SIZES | options) as engine:
            sequences, lengths, made = [engine.open_sequence() for _ in range(2)], [0, 0], []
            for which, n, wanted in parts:
                if lengths[which] + n <= SIZES["n_ctx"]:
                    tokens = random_tokens(lengths[which], n, 61)
                    rows = range(n) if wanted else ()
                    chunk = SequenceChunk(sequences[which], lengths[which], tokens, logits_indices=rows)
                    made.append(engine.step([chunk]).logits.copy())
                    lengths[which] += n
            found.append(made)
    for got, want in zip(*found, strict=True):
        assert_same(got.view(np.uint32), want.view(np.uint32), str(memory))


def test_each_expert_is_read_once_in_a_step(experts: Path) -> None:
    with engine_for(experts, memory=memory_for(experts, 0.0), threads=2, **SIZES) as engine:
        stream = stream_of(engine)
        seq_id = engine.open_sequence()
        for start in range(0, 48, 16):
            before = stream.counts.bytes_read
            engine.step([SequenceChunk(seq_id, start, random_tokens(start, 16, 61))])
            assert stream.counts.bytes_read - before <= stream.plan.n_bytes


def test_experts_stay_where_there_is_room(experts: Path) -> None:
    """The same row again needs no reads of experts once they are there."""
    with engine_for(experts, memory=memory_for(experts, 0.999), threads=2, **SIZES) as engine:
        stream = stream_of(engine)
        seq_id = engine.open_sequence()
        engine.step([SequenceChunk(seq_id, 0, [5])])
        before = stream.counts.bytes_read
        engine.truncate(seq_id, 0)
        engine.step([SequenceChunk(seq_id, 0, [5])])
        assert stream.counts.bytes_read == before


def test_embeddings(dense: Path) -> None:
    found = []
    for memory in (None, memory_for(dense, 0.2)):
        with GGUFFile.open(dense) as file, Engine(Options(memory=memory, threads=2, **SIZES)) as engine:
            engine.load(file, hidden_states(define(file)))
            found.append(engine.hidden([SequenceChunk(engine.open_sequence(), 0, list(range(12)))]).copy())
    assert_same(found[0].view(np.uint32), found[1].view(np.uint32), "hidden states")


def test_what_fits_is_not_streamed(dense: Path, folder: Path) -> None:
    with engine_for(dense, memory=8 << 30, **SIZES) as engine:
        assert isinstance(engine.lowered, CpuLoweredGraph)
        assert engine.lowered.stream is None
        assert engine.plan is not None
        assert not engine.plan.streamed


# -- the file of tiles


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*"))


def test_the_file_is_made_once_and_again_where_it_is_damaged(
    dense: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, want = memory_for(dense, 0.3), logits(dense, 16)
    for left in files(folder):
        left.unlink()
    made: list[str] = []
    make = TileFolder.make
    monkeypatch.setattr(TileFolder, "make", lambda self, key, *rest: (made.append(key), make(self, key, *rest))[1])

    def check(n_made: int) -> Path:
        assert_same(logits(dense, 16, memory=memory).view(np.uint32), want.view(np.uint32), "logits")
        assert len(made) == n_made
        (one,) = files(folder)
        return one

    one = check(1)
    assert check(1) == one
    os.truncate(one, one.stat().st_size - PAGE)
    assert check(2) == one
    with one.open("r+b") as file:
        file.seek(-PAGE + 30, os.SEEK_END)
        file.write(b"x")
    check(3)
    dense.touch()  # another file, as far as one can see
    check_key = made[-1]
    logits(dense, 16, memory=memory)
    assert len(made) == 4
    assert made[-1] != check_key


def test_old_files_go_and_the_disk_may_be_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = TileFolder(tmp_path / "tiles")

    def fill(file: disk.DirectFile) -> None:
        area = disk.mmap.mmap(-1, 2 * PAGE)
        area[:] = b"a" * (2 * PAGE)
        file.write(memoryview(area), 0)

    for key in "abc":
        folder.make(key, 2 * PAGE, fill).close()
    past = time.time() - MAX_AGE - 60
    os.utime(tmp_path / "tiles/a.tiles", (past, past))
    (tmp_path / "tiles/x.part").touch()
    os.utime(tmp_path / "tiles/x.part", (past, past))
    folder.make("d", 2 * PAGE, fill).close()
    assert [path.name for path in files(tmp_path / "tiles")] == ["b.tiles", "c.tiles", "d.tiles"]
    os.utime(tmp_path / "tiles/c.tiles", (past + 120, past + 120))
    monkeypatch.setattr(
        TileFolder, "free_bytes", lambda self: 9 * PAGE - sum(p.stat().st_size for p in files(self.path))
    )
    folder.make("e", 2 * PAGE, fill).close()
    assert [path.name for path in files(tmp_path / "tiles")] == ["b.tiles", "d.tiles", "e.tiles"]
    with pytest.raises(BackendError, match=r"the weights need .* on the disk of .*, .* are free; make room"):
        folder.make("f", 20 * PAGE, fill)
    (tmp_path / "tiles").chmod(0o777)
    with pytest.raises(BackendError, match="others can write to it"):
        folder.make("g", 2 * PAGE, fill)


# -- disks that fail


class Disk:
    """Reads that fail from some number on; `short`: give one page at a time, or nothing."""

    def __init__(self) -> None:
        self.left, self.n, self.how = 1 << 60, 0, ""
        self.preadv = os.preadv

    def __call__(self, descriptor: int, buffers: list[memoryview], offset: int) -> int:
        self.n += 1
        self.left -= 1
        if self.left < 0:
            if self.how == "ends":
                return 0
            if self.how == "pages":
                return self.preadv(descriptor, [buffers[0][:PAGE]], offset)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self.preadv(descriptor, buffers, offset)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr("zinc_rt.mem.disk.os.preadv", made)
    return made


def failure(run: Callable[[], object]) -> str:
    try:
        run()
    except ReadFailed as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("how", "message", "model"),
    [
        ("", "Input/output error", "experts"),
        ("ends", "the file ends there", "dense"),
        pytest.param("", "Input/output error", "dense", marks=pytest.mark.slow),
        pytest.param("ends", "the file ends there", "experts", marks=pytest.mark.slow),
    ],
)
def test_a_step_whose_reads_fail_ends_alone(
    model: str, how: str, message: str, failing: Disk, request: pytest.FixtureRequest
) -> None:
    """At each read of a step in turn: the next step computes what it would have, and memory does not grow."""
    path = request.getfixturevalue(model)
    want, tokens = logits(path, 16), random_tokens(1, LENGTH, 61)
    with engine_for(path, memory=memory_for(path, 0.1), threads=2, **SIZES) as engine:
        stream = stream_of(engine)
        failing.how, failed = how, 0
        for ok in (*range(0, 40, 5), 60):
            seq_id = engine.open_sequence()
            failing.left = ok
            error = failure(partial(run_tokens, engine, seq_id, tokens, 16))
            failing.left = 1 << 60
            if error:
                assert re.search(rf"\.tiles cannot be read at byte \d+: {message}", error)
                failed += 1
            engine.truncate(seq_id, 0)
            got = run_tokens(engine, seq_id, tokens, 16)
            assert_same(got.view(np.uint32), want.view(np.uint32), f"after {ok} reads")
            assert stream._used <= stream.plan.room
            engine.close_sequence(seq_id)
        assert failed > 3


def test_reads_that_come_in_parts_are_completed(experts: Path, failing: Disk) -> None:
    want = logits(experts, 16)
    failing.left, failing.how = 0, "pages"
    got = logits(experts, 16, memory=memory_for(experts, 0.1))
    assert_same(got.view(np.uint32), want.view(np.uint32), "logits")


def test_a_failed_read_ends_the_requests_of_its_step(experts: Path, failing: Disk) -> None:
    with engine_for(experts, memory=memory_for(experts, 0.1), threads=2, **SIZES) as engine:
        core = EngineCore(engine, CoreVocabulary(N_VOCAB, frozenset()))
        params = zinc_rt.SamplingParams(max_tokens=4, temperature=0.0)
        ends = {}
        for name in ("a", "b"):
            core.submit(Submit(name, tuple(range(5)), params, 1))
            failing.left = 5 if name == "a" else 1 << 60
            while not core.idle:
                for event in core.turn().events:
                    if isinstance(event, Failed | Finished):
                        ends[event.id] = event
                core.check_integrity()
        assert isinstance(ends["a"], Failed)
        assert "cannot be read at byte" in ends["a"].message
        assert isinstance(ends["b"], Finished)


# -- what is refused, and what is said


def test_refusals(dense: Path) -> None:
    with (
        pytest.raises(UsageError, match="--memory is for native kernels"),
        engine_for(dense, memory=1 << 30, kernels="reference"),
    ):
        pass
    with pytest.raises(UsageError, match="--memory applies to the CPU only; it cannot be used with --device cuda"):
        zinc_rt.load(device="cuda", memory=1 << 30)
    with (
        pytest.raises(MemoryPlanError, match="are left for weights that are read as steps need them, and a step needs"),
        engine_for(dense, memory=1 << 20, **SIZES),
    ):
        pass
    with (
        engine_for(dense, memory=memory_for(dense, 0.1), threads=2, **SIZES) as engine,
        pytest.raises(BackendError, match="cannot be profiled"),
    ):
        engine.start_profile()


def test_drafts_of_a_model_larger_than_memory(folder: Path) -> None:
    path = built_in_model()
    memory = memory_for(path, 0.5)
    with pytest.raises(UsageError, match="leaves no room for weights that draft; use ngram or off"):
        zinc_rt.load(path, memory=memory, threads=2, spec="draft", draft_model=path, **SIZES)
    with zinc_rt.load(path, memory=memory, threads=2, spec="ngram", **SIZES) as model:
        got = model.generate("Once upon a time", zinc_rt.SamplingParams(max_tokens=12, temperature=0.0))
    with zinc_rt.load(path, threads=2, **SIZES) as model:
        want = model.generate("Once upon a time", zinc_rt.SamplingParams(max_tokens=12, temperature=0.0))
    assert str(got) == str(want)


def test_a_plan_that_does_not_fit_names_the_way(dense: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = memory_for(dense, 0.5)
    monkeypatch.setattr(CpuBackend, "memory_available", property(lambda _: memory))
    monkeypatch.setattr("zinc_rt.engine.streamed.read_rate", lambda _: 2.1e9)
    with pytest.raises(MemoryPlanError) as caught, engine_for(dense, **SIZES):
        pass
    assert re.search(
        r"; or give --memory \d+M, and steps read weights from the disk \([\d.]+ [KM]iB in .*tiles\): [\d.]+ KiB of"
        r" weights are read from the disk for each token: about \d+ tokens/s, as the disk gives 2\.1 GB/s$",
        str(caught.value),
    )


def test_the_speed_is_that_of_the_weights_disk(dense: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"model": 5e8, "small": None, "weights": 2e9}
    monkeypatch.setattr("zinc_rt.engine.streamed.read_rate", lambda path: rates.get(Path(path).name, 5e8))
    weights = StreamedWeights(tmp_path, 10**9, 10**9)
    with GGUFFile.open(dense) as file:
        assert speed_of(weights, file).endswith("about 0.5 tokens/s, as the disk gives 0.5 GB/s")
        (tmp_path / "small").touch()
        assert speed_of(weights, file).endswith("about 0.5 tokens/s, as the disk gives 0.5 GB/s")
        (tmp_path / "weights").touch()
        assert speed_of(weights, file).endswith("about 2 tokens/s, as the disk gives 2 GB/s")


def test_the_rate_of_a_disk_is_measured(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(bytes(9 << 20))
    rate = disk.read_rate(large)
    assert rate is not None
    assert 1e6 < rate < 1e12
    (tmp_path / "small").write_bytes(bytes(100))
    assert disk.read_rate(tmp_path / "small") is None
    assert disk.read_rate(tmp_path / "none") is None


# -- in a control group

GROUPS = Path("/sys/fs/cgroup/memory")
CHILD = """
import sys
from pathlib import Path
from tests.helpers import engine_for, random_tokens, run_tokens
from zinc_rt.backends.cpu.backend import CpuBackend
from zinc_rt.backends.cpu.tile_file import TileFolder
path, folder, memory = sys.argv[1:]
CpuBackend._tile_folder = lambda _: TileFolder(Path(folder))
with engine_for(Path(path), n_ctx=64, n_batch=16, memory=int(memory)) as engine:
    assert engine.plan.streamed
    run_tokens(engine, engine.open_sequence(), random_tokens(1, 32, 61), 16)
"""


def write_alike(path: Path, spec: Spec) -> None:
    """A model in F16 whose tensors repeat the same numbers: drawing as many as it has takes long."""
    writer, pool = GGUFWriter(path), np.random.default_rng(1).standard_normal(1 << 16, np.float32) / 32
    for key, value in spec.metadata().items():
        writer.add(key, value, ValueType.UINT32 if type(value) is int else None)
    for name, shape in spec.shapes().items():
        kind = spec.format_of(name, shape)
        values = np.resize(pool.astype(np.float16 if kind is T.F16 else np.float32), shape)
        writer.add_tensor(name, values.reshape(-1, shape[-1]).view(np.uint8), kind, shape)
    writer.write()


@pytest.fixture
def group() -> Iterator[Path]:
    made = GROUPS / f"zinc-test-{os.getpid()}"
    try:
        made.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error.strerror}")
    yield made
    for _ in range(50):
        with suppress(OSError):
            made.rmdir()
            return
        time.sleep(0.1)


@pytest.mark.slow  # takes seconds; `test_the_same_bits` and those of failed reads see what a stream holds
def test_memory_stays_under_the_limit_of_a_control_group(group: Path, folder: Path, tmp_path: Path) -> None:
    """The weights are twice as large as the limit: the child would be killed. Nothing is swapped."""
    path = tmp_path / "large.gguf"
    spec = replace(QWEN3, weights=T.F16, n_embd=1024, n_ff=4096, head_dim=64, n_heads=16, n_kv_heads=4, n_layers=7)
    write_alike(path, spec)
    limit = 130 << 20
    assert path.stat().st_size > 1.5 * limit
    (group / "memory.limit_in_bytes").write_text(str(limit))
    join = f'echo 0 > {group}/cgroup.procs && exec "$0" "$@"'  # so that the interpreter counts, too
    arguments = [sys.executable, "-c", CHILD, str(path), str(folder), str(limit)]
    done = subprocess.run(["sh", "-c", join, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int((group / "memory.max_usage_in_bytes").read_text()) <= limit
    stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    assert int(stat.get("total_swap", 0)) == 0
