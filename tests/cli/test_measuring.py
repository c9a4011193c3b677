"""Verbs that measure: perplexity against an independent computation, bench against its own promises."""

import csv
import io
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest

import zinc_rt
from tests.backends.cpu.test_whole_models import SPECS
from tests.helpers import write_model
from tests.serving.clients.caller import write_shallow
from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.backends.diagnostics.calibration import SMALL
from zinc_rt.cli import perplexity as perplexity_verb
from zinc_rt.cli.bench import PROMPT, TEXT, measure
from zinc_rt.perf_model.published import PUBLISHED, SHARED_BYTES


def slow_perplexity(path, text, window):
    """From whole logits in float64: mean and error of -log p over the second halves of whole windows."""
    losses = []
    with zinc_rt.load(path, n_ctx=window) as model:
        ids = model.tokenize(text, parse_special=False)
        count = max(1, len(ids) // window)
        for w in range(count):
            part = ids[w * window : (w + 1) * window]
            logits = model.logits(part).astype(np.float64)
            for i in range(len(part) // 2, len(part) - 1):
                row = logits[i] - logits[i].max()
                losses.append(math.log(np.exp(row).sum()) - row[part[i + 1]])
    mean = np.mean(losses)
    return math.exp(mean), math.exp(mean) * np.std(losses, ddof=1) / math.sqrt(len(losses)), len(losses)


@pytest.mark.parametrize("window", [32, 33, 256])
def test_perplexity(zinc, tiny, tmp_path, window):
    text = "the quick brown fox jumps over the lazy dog. " * 3
    (tmp_path / "text.txt").write_text(text)
    outcome = zinc("perplexity", "-m", tiny, "-f", tmp_path / "text.txt", "-c", window)
    value, error, tokens = slow_perplexity(tiny, text, window)
    assert outcome.code == 0
    shown = re.fullmatch(r"perplexity ([\d.]+) \+/- ([\d.]+) \((\d+) tokens, (\d+) windows of \d+\)\n", outcome.out)
    assert float(shown[1]) == pytest.approx(value, rel=1e-4)
    assert float(shown[2]) == pytest.approx(error, rel=1e-3)
    assert int(shown[3]) == tokens
    tree = json.loads(zinc("perplexity", "-m", tiny, "-c", window, "--json", stdin=text).out)
    assert tree["perplexity"] == pytest.approx(value, rel=1e-9)
    assert tree["standard_error"] == pytest.approx(error, rel=1e-9)


def test_every_window_starts_with_bos_where_the_model_wants_one(tiny):
    with zinc_rt.load(tiny, n_ctx=32) as model:

        class WithBos:
            tokenizer = type("T", (), {"bos_id": 256, "add_bos": True})
            logits_in_parts = model.logits_in_parts

        ids = [97, *range(97, 111)]
        with_bos = list(perplexity_verb.window_losses(WithBos, ids))
        assert with_bos == list(perplexity_verb.window_losses(model, [256, *ids[1:]]))
        assert with_bos != list(perplexity_verb.window_losses(model, ids))


def test_perplexity_errors(zinc, tiny):
    assert zinc("perplexity", "-m", tiny, "-c", 3, stdin="hello there").code == 2
    short = zinc("perplexity", "-m", tiny, stdin="abc")
    assert short.code == 1
    assert "3 tokens" in short.error


def test_perplexity_stopped_by_ctrl_c_reports_whole_windows(zinc, tiny, monkeypatch):
    original, calls = perplexity_verb.window_losses, []

    def interrupted(model, ids):
        calls.append(ids)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(model, ids)

    monkeypatch.setattr(perplexity_verb, "window_losses", interrupted)
    outcome = zinc("perplexity", "-m", tiny, "-c", 32, stdin="abcdefgh" * 20)
    assert outcome.code == 130
    assert "(30 tokens, 2 windows of 32)" in outcome.out
    assert "2 of 5 windows" in outcome.err


def test_bench_formats(zinc, tiny):
    args = ("bench", "-m", tiny, "-p", "8,16", "-n", "4", "-r", 2)
    table = zinc(*args)
    assert table.code == 0
    assert [line.split("|")[1:3] for line in table.out.splitlines()[4:]] == [
        [" prompt ", "      8 "],
        [" prompt ", "     16 "],
        [" text   ", "      4 "],
    ]
    tree = json.loads(zinc(*args, "-o", "json").out)
    assert [(r["test"], r["tokens"], len(r["samples"])) for r in tree["results"]] == [
        ("prompt", 8, 2),
        ("prompt", 16, 2),
        ("text", 4, 2),
    ]
    assert all(min(r["samples"]) <= r["median"] <= max(r["samples"]) for r in tree["results"])
    assert all(r["median"] > 0 for r in tree["results"])
    rows = list(csv.DictReader(io.StringIO(zinc(*args, "-o", "csv").out)))
    assert [r["tokens"] for r in rows] == ["8", "16", "4"]
    assert rows[0]["model"] == "tiny"


def test_bench_draws_what_it_measured(zinc, tiny, tmp_path):
    speeds, profile = tmp_path / "speeds.svg", tmp_path / "profile.svg"
    args = ("-m", tiny, "-p", "8", "-n", "2", "-r", 1, "-o", "csv")
    done = zinc("bench", *args, "--plot", speeds, "--profile", "--trace-file", profile)
    assert done.code == 0
    fastest = next(csv.DictReader(io.StringIO(done.out)))["median"]
    assert f"8: {float(fastest):.2f} tokens/s" in speeds.read_text(encoding="utf-8")
    assert "the last step, " in profile.read_text(encoding="utf-8")
    assert "must end in .svg" in zinc("bench", *args, "--plot", tmp_path / "speeds.png").error
    assert {*tmp_path.iterdir()} == {profile, speeds}


def test_bench_measures_what_it_says(tiny):
    """No prompt token comes from the cache, and n text tokens are n steps."""
    with zinc_rt.load(tiny, n_ctx=64) as model:
        seen, original = [], model.generate

        def spy(*args, **kwargs):
            result = original(*args, **kwargs)
            seen.append(result.stats)
            return result

        model.generate = spy
        measure(model, PROMPT, 20, 0, 3, lambda: None)
        assert [s.prompt_tokens for s in seen] == [20] * 4
        assert [s.cached_tokens for s in seen] == [0] * 4
        seen.clear()
        measure(model, TEXT, 5, 0, 3, lambda: None)
        assert [s.completion_tokens for s in seen] == [6] * 4
        assert [s.cached_tokens for s in seen] == [0] * 4


@pytest.mark.parametrize("args", [("-p", "0", "-n", "0"), ("-p", "x"), ("-n", "-4"), ("-r", "0"), ("-o", "xml")])
def test_bench_errors(zinc, tiny, args):
    outcome = zinc("bench", "-m", tiny, *args)
    assert outcome.code == 2
    assert args[0] in outcome.error


def test_bench_stopped_by_ctrl_c_reports_what_is_done(zinc, tiny, monkeypatch):
    import zinc_rt.cli.bench as bench_verb

    original, calls = bench_verb.measure, []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(*args)

    monkeypatch.setattr(bench_verb, "measure", interrupted)
    outcome = zinc("bench", "-m", tiny, "-p", "8", "-n", "4", "-r", 1)
    assert outcome.code == 130
    assert "1 of 2 tests" in outcome.err
    assert "prompt" in outcome.out


def test_bench_predicts_what_it_does_not_run(zinc, tmp_path):
    spec = replace(SPECS["qwen3-q8_0"], n_layers=1)  # whose kernels `test_forecasts.py` has compiled
    tiny = write_model(tmp_path / "tiny.gguf", spec).path
    outcome = zinc("bench", "--predict", "rx9070", "-m", tiny, "-p", "0", "-d", "0,40", "-o", "json")
    assert outcome.code == 0
    tree = json.loads(outcome.out)
    assert (tree["card"], tree["memory"], tree["fits"]) == ("AMD Radeon RX 9070", 16 << 30, True)
    assert [(test["test"], test["depth"]) for test in tree["tests"]] == [("text", 1), ("text", 40)]
    for test in tree["tests"]:
        assert test["speed"]["low"] < test["speed"]["likely"] < test["speed"]["high"]
        assert test["speed"]["likely"] == pytest.approx(1 / test["seconds"]["likely"])
    for test in tree["tests"]:  # what is said of the phases adds up to the whole
        phases, waits = test["phases"], test["barriers"] * 1.5e-6 + test["full_barriers"] * 1e-6 + 20e-6
        assert sum(kind["times"] for kind in phases) == test["barriers"] + 1
        assert sum(kind["parts"]["seconds"] for kind in phases) + waits == pytest.approx(test["seconds"]["likely"])
        for kind in phases:
            assert sum(kind["parts"].values()) == pytest.approx(2 * kind["parts"]["seconds"])
    table = zinc("bench", "--predict", "rx9070", "-m", tiny, "-p", "0", "-d", "0", "--profile").out
    assert "\n| barriers, 0 of them full |" in table
    assert f"| {tree['tests'][0]['speed']['likely']:6.0f} |" in table
    assert "It fits: " in table


def test_bench_predicts_other_makers_gpus_from_their_bandwidth(zinc, tiny):
    """The bytes of a token over shares of the published rate: twice the rate, twice the speed."""
    found = {}
    for gpu, rate in (("rtx3060", 360e9), ("a770", 560e9)):
        tree = json.loads(zinc("bench", "--predict", gpu, "-m", tiny, "-d", "0,40", "-o", "json").out)
        assert [(test["test"], test["depth"]) for test in tree["tests"]] == [("text", 1), ("text", 40)]
        for test in tree["tests"]:
            assert test["seconds"]["likely"] == pytest.approx(test["bytes"] / rate / 0.7)
            assert test["speed"]["low"] * test["bytes"] == pytest.approx(0.4 * rate)
            assert test["speed"]["high"] * test["bytes"] == pytest.approx(0.9 * rate)
        assert tree["tests"][0]["bytes"] < tree["tests"][1]["bytes"]
        assert tree["fits"]
        assert "published constants" in tree["note"]
        found[gpu] = tree
    (row,) = csv.DictReader(io.StringIO(zinc("bench", "--predict", "a770", "-m", tiny, "-o", "csv").out))
    assert (row["card"], row["test"]) == ("Intel Arc A770", "text")
    shown = zinc("bench", "--predict", "rtx3060", "-m", tiny, "--profile").out
    assert "360 GB/s, 28 units at 1777 MHz, 102 TOPS of int8), never run" in shown
    unknown = zinc("bench", "--predict", "rtx3061", "-m", tiny)
    assert f"predicted from their bandwidth alone: {', '.join(PUBLISHED)}" in unknown.error


def test_published_constants_agree():
    """Rates of tensor cores over multiprocessors and clock are the powers of two that a multiprocessor does."""
    each = {"7.5": 2048, "8.0": 4096, "8.6": 2048, "8.9": 2048, "9.0": 8192, "12.0": 2048}
    for gpu in PUBLISHED.values():
        assert (gpu.int8_tops is None) == (gpu.capability is None)
        if gpu.capability is not None:
            assert gpu.int8_ops == pytest.approx(each[gpu.capability], rel=3e-3), gpu.name
    assert {gpu.capability for gpu in PUBLISHED.values()} == {None, *each} == {None, *SHARED_BYTES}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("bench", "--predict", "r9701"), "unknown GPU 'r9701'; these can be emulated: r9700, rx9070, rx9070xt"),
        (("bench", "--predict", "r9700", "--device", "cpu"), "--device is cpu, but --predict runs nothing"),
        (("bench", "--predict", "r9700", "-t", "2"), "--threads is 2, but --predict runs nothing"),
        (
            ("run", "a", "--device", "cpu", "--gpu", "r9700"),
            "it cannot be used with --device cpu, only with --device emu",
        ),
        (("run", "a", "--device", "emu", "--gpu", "r97"), "unknown GPU 'r97'"),
    ],
)
def test_cards_that_do_not_go_with_the_rest(zinc, tiny, arguments, says):
    outcome = zinc(*arguments, "-m", tiny)
    assert outcome.code == 2
    assert says in outcome.err
    assert outcome.err.count("\n") == 1


def test_bench_measures_the_constants_of_a_card(zinc, tmp_path, monkeypatch):
    """On the emulator they are of its own clock: the table is there, and the numbers are some."""
    monkeypatch.setattr(AmdBackend, "calibration", SMALL)
    shallow = write_shallow(tmp_path / "shallow.gguf")  # whose kernels tests of `backends/amdgpu` have compiled
    given = ("bench", "-m", shallow, "--tier", "emu", "--gpu", "rx9070", "-p", "1", "-n", "0", "-r", "1")
    tree = json.loads(zinc(*given, "-o", "json").out)["constants"]
    assert {"bandwidth", "l2", "barrier", "submission"} < set(tree)
    assert tree["bandwidth"]["likely"] == 576e9
    for constant in tree.values():
        assert constant["low"] <= constant["likely"] <= constant["high"]
        assert constant["measured"] >= 0
