"""Architectures from installed packages: `examples/model_plugin` and packages that are broken or contend for a name."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from tests.helpers import QWEN2, Spec, write_model
from tests.models.test_definition import made
from zinc_rt.cli.main import main
from zinc_rt.gguf import GGUFFile
from zinc_rt.models import define, plugins, supported
from zinc_rt.models.architectures import architecture_for
from zinc_rt.models.errors import ModelError

EXAMPLE = Path(__file__).parents[2] / "examples" / "model_plugin"
MODULE = "zinc_rt_mymodel"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that packages are installed into."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def install(site: Path, package: str, entries: dict[str, str], version: str = "0.1.0") -> None:
    """What an installer leaves of a package beside its modules."""
    info = site / f"{package.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (info / "entry_points.txt").write_text("\n".join(["[zinc_rt.models]", *lines, ""]))
    importlib.invalidate_caches()


def module_at(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def example(site: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example, installed: its module, and the entry points of its pyproject.toml."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (site / f"{MODULE}.py").write_text((EXAMPLE / f"{MODULE}.py").read_text(encoding="utf-8"))
    install(site, project["name"], project["entry-points"][plugins.GROUP], project["version"])
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    return site


def test_the_example_passes_its_own_test(example: Path, tmp_path: Path) -> None:
    """It is imported when a file needs it, and not to list it."""
    assert "my-model" in supported()
    assert MODULE not in sys.modules
    module_at(EXAMPLE / "test_mymodel.py").test_it_computes_what_its_formulas_say(tmp_path)
    assert MODULE in sys.modules
    assert len((EXAMPLE / f"{MODULE}.py").read_text(encoding="utf-8").splitlines()) < 60


@pytest.mark.skipif("seed_oss" not in supported(), reason="the package has no seed_oss to compare with")
def test_the_example_is_seed_oss_by_another_name(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were written from one sheet, by different people: the bits are equal."""
    test, bits = module_at(EXAMPLE / "test_mymodel.py"), []
    for name in ("my-model", "seed_oss"):
        monkeypatch.setattr(test, "NAME", name)
        test.written(tmp_path / f"{name}.gguf")
        bits.append(test.logits(tmp_path / f"{name}.gguf", "reference").tobytes())
    assert bits[0] == bits[1]


@pytest.mark.slow  # pip takes seconds
def test_pip_installs_the_example(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the network."""
    pytest.importorskip("setuptools", minversion="77")
    pytest.importorskip("pip")
    copy = tmp_path / "source"
    copy.mkdir()
    for file in EXAMPLE.iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    options = ["--no-build-isolation", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *options, str(copy)], check=True, capture_output=True)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    importlib.invalidate_caches()
    module_at(copy / "test_mymodel.py").test_it_computes_what_its_formulas_say(tmp_path)
    assert str(site) in str(sys.modules[MODULE].__file__)
    assert plugins.installed()["my-model"][0].package == "zinc-rt-mymodel 0.1.0"


def test_the_package_s_own_never_look_for_plug_ins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def asked() -> None:
        raise AssertionError("packages were read")

    monkeypatch.setattr(plugins, "installed", asked)
    with GGUFFile.open(write_model(tmp_path / "m.gguf", QWEN2).path) as file:
        assert define(file).info.architecture == "qwen2"
    with pytest.raises(AssertionError, match="packages were read"):
        architecture_for("my-model")


BROKEN = {
    "import no_such_module": r"ModuleNotFoundError: No module named 'no_such_module'",
    "from zinc_rt.models.blocks import Gone": r"ImportError: cannot import name 'Gone'",
    "def define(": "SyntaxError",
    "raise SystemExit(3)": "SystemExit: 3",
    "NAMES = ('other',)": r"ValueError: broken has NAMES \['other'\], without 'my-broken'",
    "": "AttributeError: module 'broken' has no attribute 'NAMES'",
    "NAMES = ('my-broken',)": "has no attribute 'define'",
    "NAMES = ('my-broken',)\ndef define(file, name): return None": "TypeError: define returned NoneType",
    "NAMES = ('my-broken',)\ndef define(file, name): return 1 / 0": "ZeroDivisionError: division by zero",
}


@pytest.mark.parametrize("code", BROKEN)
def test_a_broken_plug_in_is_named(code: str, site: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And files of other architectures open."""
    (site / "broken.py").write_text(code)
    install(site, "zinc-rt-broken", {"my-broken": "broken"}, "1.2")
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    path = write_model(tmp_path / "m.gguf", Spec("my-broken")).path
    start = r"the package zinc-rt-broken 1\.2, which has architecture 'my-broken', fails: "
    with GGUFFile.open(path) as file, pytest.raises(ModelError, match=f"{start}.*{BROKEN[code]}") as caught:
        define(file)
    assert "uninstall zinc-rt-broken" in caught.value.advice
    assert architecture_for("qwen2").NAMES
    assert "my-broken" in supported()
    sys.modules.pop("broken", None)


def test_two_packages_of_one_name(example: Path) -> None:
    install(example, "zinc-rt-another", {"my-model": "another"}, "2.0")
    with pytest.raises(ModelError, match=r"2 packages: zinc-rt-another 2\.0, zinc-rt-mymodel 0\.1\.0"):
        architecture_for("my-model")
    assert supported().count("my-model") == 1


def test_names_that_are_taken(site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The package's own and a program's go before a plug-in's; `zinc env` says so."""
    install(site, "zinc-rt-theirs", {"qwen2": "no_such_module", "made": "no_such_module", "my-model": "no_such_module"})
    install(site, "zinc-rt-twice", {"my-model": "no_such_module"})
    with made(tmp_path, lambda file, name: architecture_for("qwen2").define(file, name)) as file:
        assert architecture_for("made").NAMES == ("made",)
        assert supported().count("qwen2") == 1
        assert main(["env", "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)["plug_ins"]
        assert main(["env"]) == 0
        out = capsys.readouterr().out
    assert "qwen2" in architecture_for("qwen2").NAMES
    assert {(row["architecture"], row["package"]): row["status"] for row in rows} == {
        ("made", "zinc-rt-theirs 0.1.0"): "not used: the program has this name",
        ("my-model", "zinc-rt-theirs 0.1.0"): "not used: zinc-rt-twice 0.1.0 has this name",
        ("my-model", "zinc-rt-twice 0.1.0"): "not used: zinc-rt-theirs 0.1.0 has this name",
        ("qwen2", "zinc-rt-theirs 0.1.0"): "not used: zinc-rt itself has this name",
    }
    assert "Architectures from other packages" in out
    assert file.path


def test_a_name_that_nobody_has(example: Path) -> None:
    """The nearest known one is named, plug-ins included."""
    with pytest.raises(
        ModelError, match="'my-modell' is not supported; the nearest name that is: 'my-model'"
    ) as caught:
        architecture_for("my-modell")
    assert "docs/use/models.md" in caught.value.advice
    assert "docs/how/extending.md" in caught.value.advice
    assert "my-model" in caught.value.advice
    with pytest.raises(ModelError, match=r"'qwen22' .*: 'qwen2'"):
        architecture_for("qwen22")
    with pytest.raises(ModelError, match=r"'zzz' is not supported$"):
        architecture_for("zzz")
