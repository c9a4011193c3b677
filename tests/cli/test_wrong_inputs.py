"""Wrong inputs to every verb: code 1 or 2, one line on standard error that a terminal can show, nothing else."""

from __future__ import annotations

import pytest

from zinc_rt.cli.main import main
from zinc_rt.cli.terminal import one_line

ESCAPES = "\x1b[31m\x1b]0;title\x07\u202e"
LONG = "x" * 100_000
HUGE = "9" * 5000  # Python refuses to read an int of so many digits
MODEL_VERBS = ("run", "chat", "bench", "perplexity")

WRONG = [
    # (arguments, a word of the message). What the parser refuses:
    (("rum",), "rum"),
    ((ESCAPES,), "No such command"),
    ((LONG,), "No such command"),
    (("--nope",), "--nope"),
    (("run", f"--{ESCAPES}"), "No such option"),
    (("run", "x", f"--{LONG}"), "No such option"),
    *(((verb, "-t", value), "-t") for verb in MODEL_VERBS for value in ("1.5", "True", "", "x", HUGE, ESCAPES)),
    *((("run", "x", "-c", value), "-c") for value in ("1.5", "True", "", "0x10", HUGE, LONG)),
    (("run", "x", "--temp", "warm"), "--temp"),
    (("run", "x", "--seed", "1.0"), "--seed"),
    (("run", "x", "--top-k"), "--top-k"),
    (("run", "x", "--json=yes"), "--json"),
    # Values outside their limits:
    *((("run", "x", "-t", value), "threads is") for value in ("0", "-1", "1025")),
    *((("run", "x", "-b", value), "n_batch is") for value in ("0", "-1", "4097")),
    *((("run", "x", "-c", value), "n_ctx is") for value in ("0", "-1", "99999999999")),
    *((("run", "x", "--temp", value), "--temp is") for value in ("nan", "inf", "-1")),
    *((("run", "x", "--top-p", value), "--top-p is") for value in ("nan", "1.1", "-0.1")),
    *((("run", "x", "--seed", value), "--seed is") for value in ("-2", str(2**64))),
    (("run", "x", "-l", ESCAPES), "--logit-bias is"),
    (("run", "x", "-l", LONG), "--logit-bias is"),
    *(((verb, "-ngl", value), "-ngl is") for verb in ("chat", "bench") for value in ("x", "1.5", "-2", "", ESCAPES)),
    (("run", "x", "-ngl", "\u0663"), "-ngl is"),  # a digit, but not one of ours
    (("run", "x", "-ngl", "0", "--device", "gpu:kfd"), "-ngl 0 means the CPU"),
    (("run", "x", "--tier", "t_cpu", "--device=gpu"), "--tier 't_cpu' and --device 'gpu' are names of one option"),
    *((("run", "x", "--device", value), "unknown device") for value in ("warp", "", ESCAPES, LONG)),
    *((("run", "x", "--kernels", value), "kernels is") for value in ("jit", "", ESCAPES, LONG)),
    *((("run", "x", "--device", "cpu", "--isa", value), "level") for value in ("sse9", ESCAPES, LONG)),
    # Files:
    *(((verb, "-m", "/dev/null"), "/dev/null") for verb in ("chat", "bench", "tokenize")),
    *((("run", "x", "-m", value), "") for value in ("", "/", "/nonexistent", ESCAPES, LONG, "/dev/zero")),
    *(((verb, value), "") for verb in ("show", "graph") for value in ("/nonexistent", "/", "/dev/null", ESCAPES, LONG)),
    *((("run", "-f", value), "cannot read") for value in ("/", "/nonexistent", ESCAPES, LONG)),
    (("perplexity", "-f", "/nonexistent"), "cannot read"),
    (("perplexity", "-f", "/dev/null", "-c", "3"), "at least 4"),
    (("kernels", "show", "/nonexistent"), "/nonexistent"),
    (("kernels", ESCAPES), ""),
    (("emu", ESCAPES), ""),
    (("pm4", ESCAPES), ""),
    (("cache", "--cache-dir", "/dev/null"), "/dev/null"),
    *(((verb, "--cache-dir", ""), "--cache-dir is empty") for verb in (*MODEL_VERBS, "cache", "check")),
    (("run", "x", "--cache-dir="), "--cache-dir is empty"),
    (("run", "x", "--trace-file", ""), "--trace-file is empty"),
    # Prompts, lists, counts:
    (("run", "a", "b"), "quotes"),
    (("run", ""), "empty"),
    (("show", "a", "b"), "b"),
    (("check", "x"), "x"),
    (("bench", "-p", "1.5"), "1.5"),
    (("bench", "-p", HUGE), "-p"),
    (("bench", "-n", ESCAPES), "-n"),
    (("bench", "-r", "0"), "-r"),
]


@pytest.mark.parametrize(
    ("args", "word"), WRONG, ids=lambda v: one_line(" ".join(v) if isinstance(v, tuple) else v)[:60]
)
def test_wrong_input_is_one_line(zinc, args, word):
    outcome = zinc(*args)
    assert outcome.code in (1, 2)
    assert outcome.out == ""
    (line,) = outcome.err.split("\n")[:-1]
    assert "error: " in line
    assert "internal error" not in line
    assert word in line
    assert line.isprintable()
    assert len(line) < 1300


@pytest.mark.parametrize("value", ["warp", ESCAPES, LONG])
def test_a_wrong_device_in_the_environment(zinc, monkeypatch, capsys, value):
    zinc("--version")
    monkeypatch.setenv("ZINC_RT_TIER", value)
    capsys.readouterr()
    assert main(["run", "x"]) == 2
    (line,) = capsys.readouterr().err.split("\n")[:-1]
    assert "ZINC_RT_TIER: unknown device" in line
    assert line.isprintable()


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("kind", [RuntimeError, OSError, MemoryError])
def test_whatever_an_error_says_is_fit_for_a_terminal(zinc, tiny, monkeypatch, kind, debug):
    def broken(*args, **kwargs):
        raise kind(f"{ESCAPES}\r\n\t\x00\x9b31m \ud800" + "y" * 16_000_000)

    monkeypatch.setattr("zinc_rt.llm.load.load", broken)
    outcome = zinc("run", "-m", tiny, "x", *["--debug"] * debug)
    lines = outcome.err.split("\n")[:-1]
    assert outcome.code == 1
    assert all(line.isprintable() and len(line) < 1300 for line in lines)
    assert (len(lines) == 1) is not debug
    assert "Traceback" in outcome.err or not debug


def test_notices_too(zinc, tiny, monkeypatch):
    def talking(*args, notify, **kwargs):
        notify(f"{ESCAPES}\n{LONG}")
        raise MemoryError

    monkeypatch.setattr("zinc_rt.llm.load.load", talking)
    notice, _ = zinc("run", "-m", tiny, "x").err.split("\n")[:-1]
    shown = ESCAPES.encode("unicode_escape").decode()
    assert notice == f"zinc: {shown} " + "x" * (1000 - len(shown) - 1) + " ..."


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a  b\n\tc ", "a b c"),
        ("é 世 \x7f\x85", "é 世 \\x7f"),
        ("\x1b" * 1000, "\\x1b" * 250 + " ..."),
        ("x" * 1000, "x" * 1000),
        ("x" * 1001, "x" * 1000 + " ..."),
        ("x" * 999 + " " * 5000, "x" * 999 + " ..."),
    ],
    ids=len,
)
def test_one_line(text, line):
    assert one_line(text) == line
