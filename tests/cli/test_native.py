"""Native kernels as users meet them: options, notices, and what happens when something about them is missing."""

import json
import re

import pytest

from tests.backends.cpu.both import BEST_AND_LEAST
from tests.cli.tiny import write_tiny_model
from zinc_rt.gguf import GGMLType
from zinc_rt.lang import children
from zinc_rt.lang.cache import CLAIMS_FILE
from zinc_rt.lang.target import host_target


@pytest.fixture
def run(zinc, tiny):
    def call(*args):
        return zinc("run", "-m", tiny, "-s", 7, "-n", 12, "-v", "a text", *args)

    return call


@pytest.mark.parametrize("level", BEST_AND_LEAST)
def test_levels_say_the_same(zinc, tmp_path, level):
    """Of blocks and greedy: most kernels of that are compiled for tests of products, too."""
    path = write_tiny_model(tmp_path / "tiny.gguf", weights=GGMLType.Q8_0)
    given = ("run", "-m", path, "--temp", 0, "-n", 12, "-v", "a text")
    outcome = zinc(*given, "--isa", level, "-t", 1)
    assert outcome.out == zinc(*given).out
    assert f"zinc: cpu: native kernels for {level}, 1 thread; memory " in outcome.err


def test_both_kinds_of_kernels_say_the_same(run):
    text = run().out
    outcome = run("--kernels", "reference", "-t", 3)
    assert outcome.out == text
    assert "zinc: cpu: reference kernels, 3 threads; memory " in outcome.err


def test_the_plan_comes_before_anything_else_is_done(run, monkeypatch):
    monkeypatch.setattr("zinc_rt.backends.host.available_memory", lambda: 64 << 20)
    outcome = run()
    assert outcome.code == 1
    assert "not enough memory" in outcome.error
    assert re.search(r"native kernels for \w+, \d+ threads?; memory \S+ .iB \(weights .*\), .* available", outcome.err)


def test_json_says_what_ran(run):
    tree = json.loads(run("--json", "-t", 2).out)
    assert (tree["kernels"], tree["isa"], tree["threads"]) == ("native", host_target().name, 2)
    tree = json.loads(run("--json", "--kernels", "reference").out)
    assert (tree["kernels"], tree["isa"], tree["threads"]) == ("reference", "", 1)


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("--kernels", "fast"), 2, "native or reference"),
        (("--isa", "avx2", "--kernels", "reference"), 2, "have no levels"),
        (("--isa", "sse9"), 1, "unknown instruction-set level 'sse9'"),
        (("--isa", "gfx1201"), 1, "gfx1201 device"),
        (("-t", "0"), 2, "threads is 0"),
        (("-t", "5000"), 2, "threads is 5000"),
    ],
)
def test_wrong_choices_are_one_line(run, args, code, words):
    outcome = run(*args)
    assert outcome.code == code
    assert words in outcome.error
    assert outcome.out == ""


@pytest.mark.slow  # compiles all of a model; `tests/lang/test_building.py` and `test_cache.py` compile few
def test_all_kernels_are_compiled_in_one_go_and_kept(run, tmp_path):
    folder = tmp_path / "k"
    greedy = run("--cache-dir", folder, "--temp", 0)
    assert len(re.findall("compiling", greedy.err)) == 1
    assert re.search(rf"zinc: compiling \d+ kernels for {host_target().name}\n", greedy.err)
    cold = run("--cache-dir", folder)  # tokens are chosen by one more, which greedy texts do not need
    assert re.findall(r"compiling (\d+)", cold.err) == ["1"]
    warm = run("--cache-dir", folder)
    assert "compiling" not in warm.err
    assert warm.out == cold.out
    # One that is damaged is compiled again, alone.
    file = min((f for f in folder.iterdir() if f.name != CLAIMS_FILE), key=lambda f: f.stat().st_size)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    mended = run("--cache-dir", folder)
    assert mended.out == cold.out
    assert "its checksum does not hold; it is compiled again" in mended.err
    assert "compiling 1 kernel" in mended.err
    assert "compiling" not in run("--cache-dir", folder).err


@pytest.mark.slow
def test_without_a_cache_it_runs_and_says_so_once(run, tmp_path):
    """Here all is compiled once more; `test_kernels.py` says the same of one kernel."""
    (tmp_path / "file").write_text("")
    outcome = run("--cache-dir", tmp_path / "file")
    assert outcome.code == 0
    assert outcome.err.count("going on without it") == 1
    assert "compiling" in outcome.err


def test_a_killed_compile_process_is_one_line(run, tmp_path, monkeypatch):
    monkeypatch.setattr(children, "worker_command", lambda: ["sh", "-c", "kill -9 $$"])
    outcome = run("--cache-dir", tmp_path / "k")
    assert outcome.code == 1
    assert "the compile process was killed" in outcome.error
    assert "--kernels reference runs without" in outcome.error


def test_where_no_level_fits_the_reference_kernels_run(run, monkeypatch):
    text = run().out
    monkeypatch.setattr("zinc_rt.lang.target.host_flags", lambda: frozenset({"sse2"}))
    outcome = run()
    assert outcome.out == text
    assert "no native kernels for this processor" in outcome.err
    assert "zinc: cpu: reference kernels, 1 thread" in outcome.err
    refused = run("--kernels", "native")
    assert refused.code == 1
    assert "use the reference kernels" in refused.error
