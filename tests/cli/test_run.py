"""`zinc run`: where the prompt comes from, what is printed where, which options reach the sampler."""

import json
import os
import re
import sys

import pytest

import zinc_rt
from tests.cli.test_answer import ANSWER, MARKS
from tests.cli.tiny import SPECIALS, write_tiny_model
from tests.helpers import soon
from zinc_rt.backends.devices import NAMES
from zinc_rt.cli.model_session import INTERRUPTED, converses, stream_answer
from zinc_rt.cli.prompts import prompt_text
from zinc_rt.llm.chat import ChatChunk
from zinc_rt.llm.model import Model
from zinc_rt.sampling.generation import Chunk


@pytest.fixture
def run(zinc, tiny):
    def call(*args, **kwargs):
        return zinc("run", "-m", tiny, "-s", 7, "--raw", *args, **kwargs)

    return call


@pytest.fixture
def answer(zinc, tiny):
    def call(*args, **kwargs):
        return zinc("run", "-m", tiny, "-s", 7, *args, **kwargs)

    return call


def test_text_on_stdout_and_speed_on_stderr(run, tiny):
    outcome = run("once upon", "-n", 20)
    with zinc_rt.load(tiny) as model:
        expected = model.generate("once upon", seed=7, max_tokens=20)
    assert outcome.code == 0
    assert outcome.out == expected.text + "\n"
    last = outcome.err.splitlines()[-1]
    assert f"prompt {expected.stats.prompt_tokens} tokens" in last
    assert "text 20 tokens" in last
    assert "tokens/s" in last
    assert "seed 7" in last
    assert "token limit" in last


def test_the_prompt_may_come_from_four_places(run, tmp_path):
    (tmp_path / "p.txt").write_text("once upon\n")
    direct = run("once upon", "-n", 8).out
    assert run("-p", "once upon", "-n", 8).out == direct
    assert run("-f", tmp_path / "p.txt", "-n", 8).out == direct
    assert run("-n", 8, stdin="once upon\n").out == direct
    assert run("-f", "-", "-n", 8, stdin="once upon\r\n").out == direct
    assert run("upon", "-n", 8, stdin="once\n").out == run("once\n\nupon", "-n", 8).out  # piped in: before the prompt
    assert run("-n", 8, stdin="once upon\n\n").out != direct  # only one line end is dropped


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_texts_with_a_mark_of_their_encoding(run, tmp_path, encoding):
    mark = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}.get(encoding, b"")
    (tmp_path / "p.txt").write_bytes(mark + "once upön\n".encode(encoding))
    assert run("-f", tmp_path / "p.txt", "-n", 3).out == run("once upön", "-n", 3).out


def test_no_text(run, tmp_path):
    (tmp_path / "p.txt").write_bytes("once".encode("utf-16-le"))
    assert "has NUL characters (the first is number 2): it is no text, or UTF-16" in run("-f", tmp_path / "p.txt").error
    (tmp_path / "p.txt").write_bytes(b"\xff\xfeabc")
    assert "is not UTF-16" in run("-f", tmp_path / "p.txt").error
    assert run("").error == "zinc: error: the prompt is empty; give a text"


def test_endless_files_are_refused(answer, run, monkeypatch):
    monkeypatch.setattr("zinc_rt.cli.prompts.LONGEST", 1 << 20)
    monkeypatch.setattr("zinc_rt.cli.chat_options._LONGEST", 1 << 20)
    for args in (("-f", "/dev/zero"), ("hi", "-j", "/dev/zero"), ("hi", "--grammar-file", "/dev/zero")):
        outcome = answer(*args)
        assert outcome.code == 1
        assert "'/dev/zero' has more than 1 MiB, which is the limit" in outcome.error


def test_endless_lines_and_streams_are_refused(zinc, tiny, monkeypatch):
    monkeypatch.setattr("zinc_rt.cli.prompts.LONGEST", 1 << 20)
    monkeypatch.setattr("zinc_rt.cli.chat_input._LONGEST_MESSAGE", 1 << 20)
    assert "a line has more than 1 million characters" in zinc("chat", "-m", tiny, stdin="x" * (1 << 20)).error
    assert "standard input has more than 1 MiB" in zinc("pm4", "decode", "-", stdin=bytes((1 << 20) + 1)).error
    assert "'/dev/zero' has more than 1 MiB" in zinc("pm4", "decode", "/dev/zero").error


@pytest.mark.parametrize("late", [False, True])
def test_what_a_pipe_brings_stands_before_the_prompt(monkeypatch, late):
    """A pipe that stays open and brings nothing is told of, and waited for."""
    reader, writer = os.pipe()
    told = []

    def bring(*said):
        told.extend(said)
        os.write(writer, b"one\n")
        os.close(writer)

    monkeypatch.setattr("zinc_rt.cli.prompts._PATIENCE", 0.0)
    monkeypatch.setattr("zinc_rt.cli.prompts.say", bring)
    if not late:
        bring()
    with os.fdopen(reader) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert prompt_text(["two"], None, None) == "one\n\ntwo"
    assert len(told) == late
    with open(os.devnull) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert prompt_text(None, "two", None) == "two"


def test_a_terminal_without_a_prompt_gets_a_conversation(zinc, tiny, monkeypatch):
    """Where the model is made to answer; a base model has nothing to continue."""
    asked = []
    monkeypatch.setattr("zinc_rt.cli.run.is_terminal", lambda stream: stream is sys.stdin)
    monkeypatch.setattr("zinc_rt.cli.chat.converse", lambda *args, first, **more: asked.append(first) or 0)
    assert zinc("run", "-m", tiny).code == 0
    assert asked == [""]
    assert zinc("run", "-m", tiny, "-i", "hi").code == 0
    assert asked == ["", "hi"]
    monkeypatch.setattr("zinc_rt.cli.prompts.is_terminal", lambda stream: True)
    assert "no text given" in zinc("run").error
    assert "no text given" in zinc("run", "-m", tiny, "--json").error
    assert asked == ["", "hi"]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("a", "-p", "b"), "more than once"),
        (("a", "-f", "b"), "more than once"),
        (("once", "upon"), "quotes"),
        (("qwen3-0.6b", "hello"), 'qwen3-0.6b is a model, not a prompt: zinc run -m qwen3-0.6b "hello"'),
        (("a.gguf", "b", "c"), 'zinc run -m a.gguf "b" "c"'),
        ((), "empty"),
        (("-p", ""), "empty"),
        (("a", "--logprobs", "2"), "--json"),
        (("a", "--system", "x"), "--system is for answers, and --raw"),
        (("a", "--format", "json"), "--format json is for answers, and --raw"),
        (("a", "-q", "-v"), "--quiet and --verbose"),
        (("a", "-q", "--reasoning", "show"), "--reasoning show and --quiet"),
        (("a", "--reasoning", "loud"), "--reasoning is 'loud'; it must be show or hide"),
        (("a", "--format", "xml"), "--format is 'xml'; it must be text or json"),
        (("a", "-j", "{"), "--json-schema is no JSON: Expecting property name"),
        (("a", "-j", "{}", "--format", "text"), "--format is text"),
        (("a", "-j", "{}"), "--json-schema is for answers, and --raw"),
        (("a", "--image", "cat.png"), "--image is for answers, and --raw"),
        (("a", "--temp", "-1"), "--temp is -1.0"),
        (("a", "--top-p", "1.5"), "--top-p is 1.5"),
        (("a", "--top-k", "-3"), "--top-k is -3"),
        (("a", "-n", "0"), "--predict is 0"),
        (("a", "-s", "-2"), "--seed is -2"),
        (("a", "--repeat-penalty", "0"), "--repeat-penalty"),
        (("a", "--stop", ""), "--stop"),
        (("a", "--logit-bias", "x+1"), "--logit-bias"),
        (("a", "--logit-bias", "15"), "--logit-bias"),
        (("a", "--logit-bias", "15+x"), "--logit-bias"),
        (("a", "--logit-bias", "999+1"), "260"),
        (("a", "-c", "0"), "n_ctx is 0"),
        (
            ("a", "--device", "warp"),
            f"unknown device 'warp'; use one of {', '.join(NAMES)}",
        ),
        (("a", "--device", "gpu", "-t", "2"), "--threads applies to the CPU only; it cannot be used with --device gpu"),
        (("a" * 300, "-c", "64"), "300 tokens"),
    ],
)
def test_wrong_use_is_one_line_and_code_2(run, args, expected):
    outcome = run(*args)
    assert outcome.code == 2
    assert expected in outcome.error
    assert outcome.out == ""


def test_a_file_in_place_of_a_prompt(zinc, tiny):
    outcome = zinc("run", tiny)
    assert outcome.code == 2
    assert outcome.error == f"zinc: error: {tiny} is a model, not a prompt: zinc run -m {tiny}"


def test_failures_are_one_line_and_code_1(zinc, run, tmp_path, tiny):
    assert "No such file" in run("-f", tmp_path / "none.txt").error
    latin = tmp_path / "latin.txt"
    latin.write_bytes(b"caf\xe9")
    assert "UTF-8 text (byte 3)" in run("-f", latin).error
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(tiny.read_bytes()[:5000])
    for file, words in ((tmp_path / "none.gguf", "No such file"), (broken, "ends at byte"), (latin, "not a GGUF")):
        outcome = zinc("run", "-m", file, "hello")
        assert outcome.code == 1
        assert words in outcome.error
    assert zinc("run", "-m", tiny, "--device", "gpu:umq", "x").code == 1


def test_options_reach_the_sampler(run):
    assert run("x", "-n", 12, "--logit-bias", "113+inf").out == "q" * 12 + "\n"
    assert run("x", "-n", 12, "-l", "113+inf", "-l", "122+inf", "-l", "113-inf").out == "z" * 12 + "\n"
    greedy = run("x", "-n", 12, "--temp", 0).out
    assert run("x", "-n", 12, "--temp", 0, "-s", 8).out == greedy
    assert run("x", "-n", 12, "--temp", 9, "--top-k", 1).out == greedy
    assert run("x", "-n", 12, "--temp", 9, "--top-p", 0, "--top-k", 0).out == greedy
    assert run("x", "-n", 12, "--temp", 9, "--min-p", 1).out == greedy
    assert run("x", "-n", 40, "--temp", 0, "--presence-penalty", 50).out != greedy
    assert len(set(run("x", "-n", 20, "--temp", 0, "--frequency-penalty", 1000, "--repeat-last-n", -1).out)) == 21


def test_same_seed_same_text_whatever_the_batch(run):
    text = run("a rather long prompt", "-n", 30).out
    assert run("a rather long prompt", "-n", 30, "-b", 1).out == text
    assert run("a rather long prompt", "-n", 30, "-b", 7, "-t", 2).out == text
    assert run("a rather long prompt", "-n", 30, "-s", 8).out != text


def test_a_random_seed_is_named_and_repeats_the_text(zinc, tiny):
    first = zinc("run", "-m", tiny, "hello", "-n", 30)
    seed = first.err.rsplit("seed ", 1)[1].strip()
    assert zinc("run", "-m", tiny, "hello", "-n", 30, "-s", seed).out == first.out


def test_stop_strings_and_escapes(run):
    text = run("x", "-n", 60).out
    stop = text[20:23]
    assert run("x", "-n", 60, "--stop", stop).out == text[: text.index(stop)] + "\n"
    assert "the text ended" in run("x", "-n", 60, "--stop", stop).err
    line = run("-l", "10+inf", "-n", 5, "x", "--stop", "\\n\\n", "-e")
    assert line.out == "\n"
    assert run("-p", "a\\tb", "-e", "--json", "-n", 1).out.startswith('{"model": "tiny"')
    assert json.loads(run("-p", "a\\tb\\q", "-e", "--json", "-n", 1).out)["prompt"] == "a\tb\\q"
    assert json.loads(run("-p", "a\\tb", "--json", "-n", 1).out)["prompt"] == "a\\tb"


def test_without_a_token_limit_the_context_is_filled(run):
    outcome = run("x", "-n", -1, "-c", 32)
    assert outcome.code == 0
    assert "context full" in outcome.err
    assert "text 32 tokens" in outcome.err or "text 31 tokens" in outcome.err


def test_json(run):
    outcome = run("once", "-n", 6, "--json", "--logprobs", 2)
    tree = json.loads(outcome.out)
    assert tree["prompt"] == "once"
    assert tree["finish_reason"] == "length"
    assert tree["seed"] == 7
    assert tree["completion_tokens"] == len(tree["token_ids"]) == len(tree["logprobs"]) == 6
    assert bytes(tree["token_ids"]).decode() == tree["text"]
    assert all(len(t["top"]) == 2 and t["logprob"] <= t["top"][0]["logprob"] <= 0 for t in tree["logprobs"])
    assert [t["token"] for t in tree["logprobs"]] == [*tree["text"]]
    assert "logprobs" not in json.loads(run("once", "-n", 6, "--json").out)


def test_a_text_is_computed_once(run, tmp_path):
    prompt, file = "once upon a time there was a fox", tmp_path / "fox.state"
    first = run(prompt, "-n", 4, "--save-state", file)
    assert f"zinc: wrote {file}: 32 tokens" in first.err
    longer = prompt + first.out.rstrip("\n") + "and then"
    plain, again = (run(longer, "-n", 4, "--json", *more) for more in ((), ("--load-state", file)))
    assert json.loads(again.out)["text"] == json.loads(plain.out)["text"]
    assert "(32 from cache)" in again.err
    assert "(32 from cache)" not in plain.err
    assert "no such" in run("x", "--load-state", tmp_path / "none").error.lower()
    assert "nothing to save" in run("x", "-n", 1, "--save-state", tmp_path / "short").error
    assert [*tmp_path.iterdir()] == [file]


def prompted(tiny, text, **params):
    with zinc_rt.load(tiny) as model:
        return model.generate(model.tokenize(text, add_special=False), seed=7, max_tokens=9, **params).text


def test_a_model_with_a_template_answers(answer, run, tiny, zinc, templateless):
    text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    system = "<|im_start|>system\nbe brief<|im_end|>\n"
    assert answer("hi", "-n", 9).out == answer("hi", "-n", 9, "--chat").out == prompted(tiny, text) + "\n"
    assert answer("hi", "--system", "be brief", "-n", 9).out == prompted(tiny, system + text) + "\n"
    assert answer("hi", "--display-prompt", "-n", 9).out == f"hi\n\n{prompted(tiny, text)}\n"
    assert run("hi", "-n", 9).out == answer("hi", "-n", 9, "-no-cnv").out == prompted(tiny, "hi") + "\n"
    assert zinc("run", "-m", templateless, "-s", 7, "hi", "-n", 9).out == run("hi", "-n", 9).out
    for words in (("--chat",), ("--system", "x"), ("--format", "json")):
        refused = zinc("run", "-m", templateless, "hi", *words)
        assert refused.code == 1
        assert "no chat template" in refused.error
        assert len(refused.err.splitlines()) == 1


def test_an_answer_has_no_limit_but_the_context(answer, run):
    assert "text 256 tokens" in run("x", "-c", 300).err
    assert "context full" in answer("x", "-c", 300).err


def test_a_base_model_continues_unless_it_is_asked_to_answer(zinc, tiny, tmp_path):
    """The model in the package is one."""
    with zinc_rt.load() as model:
        assert model.file.metadata["general.finetune"] == "base"
        expected = {
            (): model.generate("A fox", seed=7, max_tokens=9).text,
            ("--chat",): model.chat([{"role": "user", "content": "A fox"}], seed=7, max_tokens=9).text,
        }
    for words, text in expected.items():
        assert zinc("run", "A fox", "-s", 7, "-n", 9, *words).out == text + "\n"
    base = write_tiny_model(tmp_path / "base.gguf", finetune="3b-Base")
    tuned = write_tiny_model(tmp_path / "tuned.gguf", finetune="Instruct")
    assert [converses(path) for path in (None, base, tuned, tiny)] == [False, False, True, True]


def test_an_answer_follows_a_schema(answer, tmp_path):
    schema = {"type": "object", "properties": {"n": {"enum": [12]}}, "required": ["n"], "additionalProperties": False}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    for words in (("-j", json.dumps(schema)), ("--json-schema", tmp_path / "schema.json"), ("-jf", "-")):
        outcome = answer("hi", *words, stdin=json.dumps(schema))
        assert json.loads(outcome.out) == {"n": 12}, outcome.err
        assert "the text ended" in outcome.err
    assert answer("hi", "--format", "json", "-n", 2).out[0] == "{"
    assert answer("hi", "-j", '{"type": 3}').error == (
        "zinc: error: --json-schema: type is 3; it must be a type's name, or a list of them"
    )
    assert "cannot read" in answer("hi", "-j", tmp_path / "none.json").error
    (tmp_path / "list.json").write_text("[]")
    assert "a schema is an object" in answer("hi", "-j", tmp_path / "list.json").error


def test_one_line_before_and_one_behind(answer, run):
    run("x", "-n", 3)  # may compile kernels, and say so
    for call in (answer, run):
        first, last = call("x", "-n", 3).err.splitlines()
        assert re.fullmatch(r"tiny F32 on CPU \(\d+ threads?\), context 256", first)
        assert last.endswith("| seed 7")
    assert answer("x", "-n", 3, "-q", "-c", 64, "-t", 1, "-ngl", 3).err == ""
    assert run("x", "-n", 3, "-c", 64, "-t", 1).err.splitlines()[-2] == "tiny F32 on CPU (1 thread), context 64 of 256"
    device, kernels, first, _ = run("x", "-n", 3, "-v").err.splitlines()
    assert device.startswith("zinc: device cpu; skipped gpu: ")
    assert re.match(r"zinc: cpu: native kernels for \w+, \d+ threads?; memory ", kernels)
    assert first.startswith("tiny F32 on CPU (")


def test_what_works_and_is_hardly_meant_is_said(run, monkeypatch):
    monkeypatch.setattr("zinc_rt.backends.cpu.cores.default_threads", lambda: 2)
    context, threads = run("x", "-n", 3, "-c", 300, "-t", 3).err.splitlines()[1:-1]
    assert context.startswith("zinc: -c 300 is beyond the 256 tokens of context that the model was trained on")
    assert threads.startswith("zinc: -t 3 is more than the 2 cores that this process may use")
    assert len(run("x", "-n", 3, "-c", 256, "-t", 2).err.splitlines()) == 2


def test_an_answer_whose_channels_are_marked(zinc, tmp_path, monkeypatch):
    """Its text is the final channel; a plain continuation is shown as it comes."""
    path = write_tiny_model(tmp_path / "m.gguf", marks=[mark for mark in MARKS if mark not in SPECIALS])
    pieces = [Chunk(piece, token_id=i) for i, piece in enumerate(ANSWER)] + [Chunk("", finish_reason="stop")]
    monkeypatch.setattr(Model, "stream", lambda *_: (piece for piece in pieces))
    monkeypatch.setattr(Model, "chat_stream", lambda *_, **__: (ChatChunk((), piece) for piece in pieces))
    call = "zinc: the model calls functions.f({}); there are no tools here"
    for terminal in (False, True):
        monkeypatch.setattr("zinc_rt.cli.chat_options.is_terminal", lambda _, terminal=terminal: terminal)
        outcome = zinc("run", "-m", path, "hi", "--chat")
        assert outcome.out == "It is 42.\n", outcome.err
        assert ("Let me see." in outcome.err) is terminal
        assert call in outcome.err.splitlines()
    tree = json.loads(zinc("run", "-m", path, "hi", "--chat", "--json").out)
    assert (tree["text"], tree["reasoning"]) == ("It is 42.", "Let me see.")
    assert tree["tool_calls"] == [{"name": "functions.f", "arguments": "{}"}]
    assert zinc("run", "-m", path, "hi", "--raw").out == ANSWER + "\n"
    for words, shown in ((("--reasoning", "show"), True), (("--reasoning", "hide"), False), (("-q",), False)):
        assert ("Let me see." in zinc("run", "-m", path, "hi", *words).err) is shown


def test_the_prompt_is_printed_when_asked_for(run):
    plain = run("once", "-n", 5).out
    assert run("once", "-n", 5, "--display-prompt").out == "once" + plain
    assert run("once", "-n", 5, "--no-display-prompt").out == plain


def test_notices_name_the_device(run, monkeypatch):
    assert "device cpu; skipped gpu: no AMD GPU is in sight" in run("x", "-n", 1, "-v").err
    for words in (("--device", "cpu"), ("--tier", "t_cpu"), ("--tier=cpu",)):
        assert "skipped" not in run("x", "-n", 1, "-v", *words).err
    assert "--tier" not in run("--help").out
    for name in ("t_cpu", "cpu"):
        monkeypatch.setenv("ZINC_RT_TIER", name)
        assert "skipped" not in run("x", "-n", 1, "-v").err
    monkeypatch.setenv("ZINC_RT_TIER", "nonsense")
    outcome = run("x", "-n", 1)
    assert outcome.code == 2
    assert "ZINC_RT_TIER" in outcome.error


def test_after_ctrl_c_the_speed_does_not_count_what_was_cached(tiny):
    def stop(text):
        raise KeyboardInterrupt

    with zinc_rt.load(tiny, device="cpu") as model:
        ids = model.tokenize("a prompt of some length")

        def stopped(prompt):
            stream, cached = model.stream(prompt, seed=1, ignore_eos=True), model.cached_tokens(prompt)
            return stream_answer(stream, lambda chunk: chunk, stop, len(prompt), cached)

        first = stopped(ids)
        assert first.finish_reason == INTERRUPTED
        assert (first.stats.prompt_tokens, first.stats.cached_tokens) == (len(ids), 0)
        again = stopped([*ids, 97])
    assert again.stats.cached_tokens == len(ids)
    assert again.stats.prefill_tokens_per_second == pytest.approx(1 / again.stats.prefill_seconds)
    assert f"prompt {len(ids) + 1} tokens ({len(ids)} from cache)" in again.speed_line


@pytest.mark.parametrize("layers", soon(("99", "auto"), ("99", "all", "auto", "-1", "1")))
def test_gpu_layers_are_accepted_and_explained(run, layers):
    for flag in ("-ngl", "--n-gpu-layers", "--gpu-layers"):
        outcome = run("x", "-n", 3, flag, layers, "--device", "cpu")
        assert outcome.code == 0
        assert outcome.out == run("x", "-n", 3, "--device", "cpu").out
        lines = [line for line in outcome.err.splitlines() if "-ngl" in line]
        assert lines == [f"zinc: -ngl {layers}: layers are not divided, --device runs all of them"]


def test_no_gpu_layers_is_the_cpu(run, monkeypatch):
    monkeypatch.setenv("ZINC_RT_TIER", "t1_pm4")
    outcome = run("x", "-n", 3, "-ngl", 0)
    assert outcome.code == 0
    assert "zinc: -ngl 0: the CPU runs all layers, as with --device cpu" in outcome.err
    assert run("x", "-n", 3, "-ngl", 0, "--device", "cpu").out == outcome.out
