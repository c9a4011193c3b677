"""Verbs that look at files and machines: show, check, tokenize, graph."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import zinc_rt
from tests.cli.tiny import N_EMBD, SPECIALS
from tests.models.families import CASES
from tests.models.families.build import write_case
from zinc_rt.backends.cpu.choice import TargetTuning
from zinc_rt.backends.cpu.cores import default_threads
from zinc_rt.backends.devices import BY_DRIVER
from zinc_rt.cli import machine
from zinc_rt.cli.native import _products
from zinc_rt.engine.engine import Device, DeviceReport
from zinc_rt.gguf import GGMLType, GGUFFile, GGUFWriter
from zinc_rt.lang.cache import default_cache_dir
from zinc_rt.lang.errors import CompileError
from zinc_rt.lang.target import host_processor, host_target, host_targets

NO_CHOICE = "in vectors; there is no other way here, so nothing is measured"


def test_show(zinc, tiny):
    outcome = zinc("show", tiny)
    assert outcome.code == 0
    assert outcome.err == ""
    rows = dict(line.split(maxsplit=1) for line in outcome.out.splitlines())
    assert rows["architecture"] == "llama"
    assert rows["heads"] == "2"
    assert rows["layers"] == "1"
    assert rows["runs"].split() == ["here", "yes"]
    assert rows["chat"].split() == ["template", "yes"]
    with GGUFFile.open(tiny) as file:
        parameters = sum(t.n_elements for t in file.tensors.values())
    assert rows["parameters"].startswith(f"{parameters / 1000:.3g} K at 32.00 bits")
    assert zinc("show", "-m", tiny).out == outcome.out


def test_show_everything(zinc, tiny):
    out = zinc("show", tiny, "--tensors", "--metadata").out
    assert f"261x{N_EMBD}" in out
    assert "token_embd.weight" in out
    assert "tokenizer.ggml.tokens" in out
    assert "string[261]" in out
    assert re.search(r"layer_norm_rms_epsilon +float32 +1e-05$", out, re.MULTILINE)
    assert max(map(len, out.splitlines())) < 140


def test_show_json(zinc, tiny):
    tree = json.loads(zinc("show", tiny, "--json", "--tensors", "--metadata").out)
    assert tree["architecture"] == "llama"
    assert tree["runs"] is True
    assert tree["figures"]["context"] == 256
    assert tree["file_bytes"] == tiny.stat().st_size
    assert tree["types"] == [
        {
            "type": "F32",
            "tensors": len(tree["tensors"]),
            "parameters": tree["parameters"],
            "bytes": 4 * tree["parameters"],
            "supported": True,
        }
    ]
    assert tree["tensors"][0]["shape"] == [261, N_EMBD]
    assert len(tree["metadata"]["tokenizer.ggml.tokens"]) == 261
    assert "tensors" not in json.loads(zinc("show", tiny, "--json").out)


def test_show_says_what_running_takes(zinc, tmp_path):
    """A token reads its chosen experts and all other matrices; convolutions keep their last positions."""
    case = CASES["lfm2moe"]
    made = write_case(tmp_path / "m.gguf", case)
    keys, every = case.keys, {name: 4 * values.size for name, values in made.tensors.items()}
    chosen, n_experts = keys["expert_used_count"], keys["expert_count"]
    read = sum(
        size * chosen // n_experts if "_exps." in name else size
        for name, size in every.items()
        if made.tensors[name].ndim > 1 and "conv.weight" not in name
    )
    kv_heads = keys["attention.head_count_kv"]
    head = keys["embedding_length"] // keys["attention.head_count"]
    needs = json.loads(zinc("show", made.path, "--json").out)["needs"]
    assert needs == {
        "step": read,
        "position": sum(2 * 2 * n * head for n in kv_heads),
        "sequence": kv_heads.count(0) * (keys["shortconv.l_cache"] - 1) * keys["embedding_length"] * 4,
    }
    out = zinc("show", made.path).out
    assert re.search(r"^weights read +[\d.]+ MiB a token$", out, re.MULTILINE)
    assert re.search(r"^recurrent state +[\d.]+ KiB a sequence$", out, re.MULTILINE)


def test_show_says_what_another_kv_cache_takes(zinc, tiny):
    needs = [json.loads(zinc("show", "--json", "--kv", kv).out)["needs"] for kv in ("f16", "q8_0")]
    assert needs[0] == json.loads(zinc("show", "--json").out)["needs"]
    assert needs[1] == {**needs[0], "position": needs[0]["position"] * 34 // 64}
    narrow = json.loads(zinc("show", tiny, "--json", "--kv", "q8_0").out)
    assert not narrow["runs"]
    assert "head_dim is 16; a KV cache of q8_0 takes heads of multiples of 32" in narrow["reason"]
    assert "kv is 'q4', it must be f16 or q8_0" in zinc("show", tiny, "--kv", "q4").error


def test_show_works_for_what_cannot_run(zinc, foreign, tmp_path):
    outcome = zinc("show", foreign)
    assert outcome.code == 0
    assert "no: architecture 'weird' is not supported" in outcome.out
    odd = GGUFWriter(tmp_path / "odd.gguf")
    odd.add("general.architecture", "llama")
    odd.add("general.name", "bad \x1b[31mname")
    odd.add("llama.block_count", "three")
    odd.write()
    outcome = zinc("show", tmp_path / "odd.gguf", "--metadata")
    assert outcome.code == 0
    assert "\x1b" not in outcome.out
    assert re.search(r"^parameters +none$", outcome.out, re.MULTILINE)
    assert json.loads(zinc("show", tmp_path / "odd.gguf", "--json", "--metadata").out)["runs"] is False


def test_show_names_formats_that_are_not_supported(zinc, tmp_path):
    raw = bytes(2 * GGMLType.Q8_K.block_bytes)
    file = tmp_path / "mix.gguf"
    w = GGUFWriter(file)
    w.add("general.architecture", "llama")
    w.add_tensor("a.weight", np.frombuffer(raw, np.uint8).reshape(2, -1), GGMLType.Q8_K, (2, 256))
    w.write()
    outcome = zinc("show", file)
    assert "Q8_K: 1 tensors" in outcome.out
    assert "not supported yet" in outcome.out


def test_show_errors(zinc, tiny, tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"GGUF\x03")
    assert zinc("show", tmp_path / "x.gguf").code == 1
    assert zinc("show", tmp_path / "none.gguf").code == 1
    assert zinc("show", tmp_path).code == 1
    both = zinc("show", tiny, "-m", tiny)
    assert both.code == 2
    assert "two model files" in both.error


def test_check(zinc):
    outcome = zinc("check")
    assert outcome.code == 0
    for words in ("gpu:umq  no", "AMD GPUs", "cpu      yes", "auto: cpu", "Python", "memory", "NumPy"):
        assert words in outcome.out
    tree = json.loads(zinc("check", "--json").out)
    assert tree["auto"] == "cpu"
    assert tree["version"] == zinc_rt.__version__
    assert [d["device"] for d in tree["devices"]] == ["gpu:cs", "gpu:kfd", "gpu:umq", *BY_DRIVER, "cpu", "emu"]
    assert all(f["value"] for f in tree["machine"] + tree["gpus"])
    native = tree["native"]
    assert native["level"] == native["levels"][0] == host_target().name
    assert native["threads"] == default_threads()
    assert all(f["ok"] for f in native["findings"])
    assert native["level"] in outcome.out
    assert re.search(r"^self-test +ok +\d+ kernels compiled and run on \d+ threads", outcome.out, re.MULTILINE)
    products = [f["value"] for f in native["findings"] if f["name"].startswith("products")]
    assert products if host_target().name == "amx" else products == [NO_CHOICE]


def test_check_says_how_products_are_computed(monkeypatch, tmp_path):
    target = next((t for t in host_targets() if "vnni" in t.isa), None)
    if target is None:
        pytest.skip("matrix registers come with byte dot products")
    monkeypatch.delenv("ZINC_RT_MATRIX_ROWS", raising=False)
    emulated = replace(TargetTuning.of(target), tiles="emulated")
    monkeypatch.setattr(TargetTuning, "of", lambda target: emulated)
    found = {f.name: f.value for f in _products(target, default_cache_dir())}
    way = r"(vectors|matrix registers, (16|32) at once) \(\d+\.\d\d x as fast as (vectors|matrix registers)\)"
    assert re.fullmatch(f"16 rows in {way}; 32 and more in {way}", found["products Q8_0"])
    monkeypatch.setenv("ZINC_RT_MATRIX_ROWS", "0")
    assert [f.value for f in _products(target, tmp_path)] == ["as ZINC_RT_MATRIX_ROWS says, not as measured"]
    monkeypatch.setenv("ZINC_RT_MATRIX_ROWS", "many")
    (refused,) = _products(target, tmp_path)
    assert not refused.ok
    assert "must be 0, 16 or 32" in refused.value


def finding(zinc, name, *args):
    tree = json.loads(zinc("check", "--json", *args).out)
    return next(f for f in tree["native"]["findings"] if f["name"] == name)


def test_check_without_a_level(zinc, monkeypatch):
    monkeypatch.setattr("zinc_rt.lang.target.host_flags", lambda: frozenset({"sse2"}))
    outcome = zinc("check")
    assert outcome.code == 0  # the reference kernels run anywhere
    assert re.search(r"^instruction sets +!! +none: native code needs .*avx2.* --kernels reference", outcome.out, re.M)
    assert re.search(r"^cpu +yes +reference kernels", outcome.out, re.M)
    assert "self-test" not in outcome.out
    assert json.loads(zinc("check", "--json").out)["native"]["level"] is None


@pytest.fixture
def no_kernels(monkeypatch):
    """Every kernel is refused at once: findings besides those of kernels need none."""

    def refused(self, modules, **_):
        return [CompileError("the compile process was killed", m.name) for m in modules]

    monkeypatch.setattr("zinc_rt.lang.compiler.Compiler.compile_each", refused)


@pytest.mark.usefixtures("no_kernels")
def test_check_of_the_cache(zinc, tmp_path):
    fresh = finding(zinc, "kernel cache", "--cache-dir", tmp_path / "a" / "b")
    assert fresh["ok"]
    assert "0 kernels" in fresh["value"]
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    refused = finding(zinc, "kernel cache", "--cache-dir", tmp_path / "open")
    assert not refused["ok"]
    assert "--cache-dir" in refused["remedy"]


@pytest.mark.usefixtures("no_kernels")
def test_check_says_why_the_self_test_failed(zinc):
    test = finding(zinc, "self-test")
    assert not test["ok"]
    assert "the compile process was killed" in test["value"]


def test_check_says_that_a_kernel_is_wrong(zinc, monkeypatch):
    monkeypatch.setattr("zinc_rt.backends.cpu.selftest.sums_are_right", lambda library, threads: False)
    assert finding(zinc, "self-test")["value"] == "a kernel gave wrong sums"


@pytest.mark.usefixtures("no_kernels")
def test_check_without_the_compiler(zinc, monkeypatch):
    monkeypatch.setattr("zinc_rt.lang.cache.llvm_version", lambda: "none")
    assert "pip install llvmlite" in finding(zinc, "compiler")["remedy"]


def test_check_fails_when_nothing_can_run(zinc, monkeypatch):
    report = DeviceReport(Device.cpu, False, "no reason", "buy one")
    monkeypatch.setattr("zinc_rt.engine.engine.probe_devices", lambda **_: [report])
    outcome = zinc("check")
    assert outcome.code == 1
    assert "no reason -> buy one" in outcome.out
    assert "auto: none" in outcome.out
    assert json.loads(zinc("check", "--json").out)["auto"] is None


def test_machine_reads_what_the_system_says(tmp_path, monkeypatch):
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert machine._cpu_quota(tmp_path) == 1.5
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert machine._cpu_quota(tmp_path) is None
    v1 = tmp_path / "cpu"
    v1.mkdir()
    (tmp_path / "cpu.max").unlink()
    (v1 / "cpu.cfs_quota_us").write_text("50000")
    (v1 / "cpu.cfs_period_us").write_text("100000")
    assert machine._cpu_quota(tmp_path) == 0.5
    (tmp_path / "cpuinfo").write_text(
        "model name\t: Some CPU\nflags\t\t: sse avx2 amx_int8 ht\n\nmodel name\t: Other\n"
    )
    about = host_processor(tmp_path / "cpuinfo")
    assert host_processor(tmp_path / "none") == {}
    monkeypatch.setattr(machine, "host_processor", lambda: about)
    monkeypatch.setattr(machine, "host_flags", lambda: frozenset(about["flags"].split()))
    assert machine._processor().value == "Some CPU; avx2 amx_int8"
    monkeypatch.setattr(machine, "host_flags", frozenset)
    assert machine._processor().value == "Some CPU; no vector features known"


def test_tokenize(zinc, tiny):
    text = f"the h{chr(233)}n {SPECIALS[2]}"
    outcome = zinc("tokenize", "-m", tiny, text)
    assert outcome.code == 0
    assert outcome.out.splitlines()[:3] == ["260  'the'", " 32  ' '", "104  'h'"]
    assert "195  b'\\xc3'" in outcome.out
    assert "8 tokens" in outcome.err
    ids = list(map(int, zinc("tokenize", "-m", tiny, "--ids", text).out.split()))
    with zinc_rt.load(tiny) as model:
        assert ids == model.tokenize(text)
        plain = zinc("tokenize", "-m", tiny, "--ids", "--no-special", text).out
        assert list(map(int, plain.split())) == model.tokenize(text, add_special=False, parse_special=False)
    tree = json.loads(zinc("tokenize", "-m", tiny, "--json", stdin=text + "\n").out)
    assert [t["id"] for t in tree] == ids
    assert tree[0]["piece"] == "the"
    assert [195] in [t["piece"] for t in tree]


def test_tokenize_takes_foreign_models_and_empty_text(zinc, foreign):
    assert zinc("tokenize", "-m", foreign, "--ids", "ab").out == "97 98\n"
    empty = zinc("tokenize", "-m", foreign, "-p", "")
    assert empty.code == 0
    assert "0 tokens" in empty.err
    assert zinc("tokenize", "-m", foreign, "a", "b").code == 2
    assert zinc("tokenize", "-m", foreign, "a", "-p", "b").code == 2


def test_graph(zinc, tiny, tmp_path):
    dot = zinc("graph", tiny)
    assert dot.code == 0
    assert dot.out.startswith("digraph")
    tree = json.loads(zinc("graph", "-m", tiny, "--format", "json", "--rows", 3, "--context", 77).out)
    assert tree["sizes"]["n_rows"] == 3
    assert tree["sizes"]["context"] == 77
    with zinc_rt.load(tiny) as model:
        assert len(tree["nodes"]) == len(model.graph.nodes)
    assert zinc("graph", tiny, "-o", tmp_path / "g.dot").out == ""
    assert (tmp_path / "g.dot").read_text() == dot.out


@pytest.mark.parametrize(
    ("args", "code"),
    [(("--format", "svg"), 2), (("--rows", "0"), 2), (("--context", "0"), 2), (("-o", "/nonexistent/g"), 1)],
)
def test_graph_errors(zinc, tiny, args, code):
    outcome = zinc("graph", tiny, *args)
    assert outcome.code == code
    assert outcome.error
    assert outcome.out == ""


def test_graph_of_an_unknown_architecture(zinc, foreign):
    outcome = zinc("graph", foreign)
    assert outcome.code == 1
    assert "weird" in outcome.error


def test_a_graph_is_what_the_name_of_its_file_says(zinc, tmp_path, monkeypatch):
    """A picture is drawn by Graphviz, and nothing else is written under its name."""
    assert zinc("graph", "-o", tmp_path / "g.json").code == 0
    assert json.loads((tmp_path / "g.json").read_text())["name"] == "qwen3"
    assert zinc("graph", "-o", tmp_path / "g.dot").code == 0
    assert (tmp_path / "g.dot").read_text().startswith("digraph")
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = zinc("graph", "-o", tmp_path / "g.svg")
    assert outcome.code == 2
    assert "Graphviz draws it and is not installed" in outcome.error
    assert f"write '{tmp_path / 'g.dot'}'" in outcome.error
    dot = tmp_path / "dot"
    dot.write_text('#!/bin/sh\n[ "$1" = -Tsvg ] && read -r first _ && echo "<svg>$first</svg>"\n')
    dot.chmod(0o755)
    assert zinc("graph", "-o", tmp_path / "g.svg").code == 0
    assert (tmp_path / "g.svg").read_text() == "<svg>digraph</svg>\n"
    failed = zinc("graph", "-o", tmp_path / "g.png")
    assert failed.code == 1
    assert not (tmp_path / "g.png").exists()


@pytest.mark.parametrize("place", ["none/x.svg", "file/x.svg"])
def test_a_picture_that_cannot_be_written_is_told_before_anything_is_measured(zinc, tmp_path, monkeypatch, place):
    (tmp_path / "file").touch()
    monkeypatch.setattr("zinc_rt.cli.bench.open_model", None)
    outcome = zinc("bench", "--plot", tmp_path / place)
    assert outcome.code == 1
    assert f"{tmp_path / place} cannot be written: " in outcome.error
