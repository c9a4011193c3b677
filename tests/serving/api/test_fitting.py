"""Options and files of several models: each goes to the models that it fits, and what fits none is refused."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.adapters.files import story_adapters
from tests.models.families import CASES
from tests.models.families.build import write_case
from tests.models.families.drafting import with_block
from tests.models.families.embedders import EMBEDDERS
from tests.vision import towers
from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGUFFile
from zinc_rt.llm.load import built_in_model
from zinc_rt.serving.api.app import App
from zinc_rt.serving.api.config import ServerConfig
from zinc_rt.serving.api.fitting import FittedModel, fit_models
from zinc_rt.serving.api.metrics import Metrics
from zinc_rt.serving.api.model_table import table_of
from zinc_rt.serving.api.start import EngineChoice, Several


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`small`, a model; `large`, which has its tensors and more bytes; `heads`, another one with a block that drafts;
    `bert`, which embeds; adapters, projectors.
    """
    made = tmp_path_factory.mktemp("models")
    shutil.copy(built_in_model(), made / "small.gguf")
    (made / "large.gguf").write_bytes(built_in_model().read_bytes() + bytes(1 << 16))
    write_case(made / "heads.gguf", with_block(CASES["qwen35"]))
    write_case(made / "bert.gguf", EMBEDDERS["bert-mean"])
    story_adapters(made, "xy")
    with GGUFFile.open(built_in_model()) as file:
        width = file.tensors["token_embd.weight"].shape[1]
    (made / "towers").mkdir()
    towers.write(made / "towers/mmproj-a.gguf", "pixtral", n_out=width)
    towers.write(made / "towers/mmproj-b.gguf", "pixtral", n_out=width)
    towers.write(made / "towers/mmproj-odd.gguf", "pixtral", n_out=width + 32)
    return made


def fit(folder: Path, names: str, **options: Any) -> dict[str, FittedModel]:
    """The models of these names."""
    return {model.names[0]: model for model in fit_models([folder / f"{name}.gguf" for name in names.split()], options)}


def having(found: dict[str, FittedModel], option: str) -> dict[str, Any]:
    """An option's values by the models that have it."""
    return {name: model.options[option] for name, model in found.items() if option in model.options}


def test_options_hold_where_they_make_sense(folder: Path) -> None:
    found = fit(folder, "small heads bert", n_ctx=64, spec="ngram", draft_max=3, lora_slots=1, mmproj="auto")
    assert having(found, "n_ctx") == dict.fromkeys(("small", "heads", "bert"), 64)
    for option, value in (("spec", "ngram"), ("draft_max", 3), ("lora_slots", 1), ("mmproj", "auto")):
        assert having(found, option) == dict.fromkeys(("small", "heads"), value)
    assert {name: model.embeds for name, model in found.items()} == {"small": False, "heads": False, "bert": True}


def test_adapters_go_to_the_models_that_they_fit(folder: Path) -> None:
    x, y = str(folder / "x.gguf"), str(folder / "y.gguf")
    found = fit(folder, "heads small large", lora=[(x, 0.5, None), (f"large={y}", 0.0, "mine")])
    assert having(found, "lora") == {"small": [(x, 0.5, None)], "large": [(x, 0.5, None), (y, 0.0, "mine")]}
    assert found["large"].adapters == ("x", "mine")
    for lora, said in (
        ([(f"heads={x}", 1.0, None)], "fits no model; heads: .* is an adapter for architecture"),
        ([(x, 0.0, "mine")], "of more than one model: small, large; give --lora-modules mine=small="),
        ([(x, 1.0, "heads")], "both called 'heads'"),
        ([(f"none={x}", 1.0, None)], "none="),
    ):
        with pytest.raises(Exception, match=said):
            fit(folder, "heads small large", lora=lora)


def test_projectors_go_to_the_models_that_they_fit(folder: Path) -> None:
    a, b, odd = (str(folder / f"towers/mmproj-{name}.gguf") for name in ("a", "b", "odd"))
    found = fit(folder, "small heads", mmproj=[a])
    assert having(found, "mmproj") == {"small": a, "heads": "auto"}
    assert {name: model.pictures for name, model in found.items()} == {"small": True, "heads": False}
    assert having(fit(folder, "small large", mmproj=[f"small={b}", f"large={a}"]), "mmproj") == {"small": b, "large": a}
    for mmproj, said in (([odd], "mmproj-odd.gguf fits no model; small: .*; heads: "), ([a, b], "both fit small")):
        with pytest.raises(UsageError, match=said):
            fit(folder, "small heads", mmproj=mmproj)
    assert having(fit(folder, "small heads"), "mmproj") == {}


def test_what_drafts_goes_to_the_models_that_it_fits(folder: Path) -> None:
    small = str(folder / "small.gguf")
    found = fit(folder, "small large heads bert", draft_model=[small], draft_max=5)
    assert having(found, "draft_model") == {"large": small}
    assert having(found, "spec") == {"large": "draft"}
    assert having(found, "draft_max") == {"large": 5}
    assert having(fit(folder, "small heads", spec="mtp"), "spec") == {"heads": "mtp"}
    for options, said in (
        ({"draft_model": [small]}, "fits no model; small: .* is not smaller than the model"),
        ({"spec": "mtp"}, "--spec mtp fits no model; small: "),
        ({"spec": "draft"}, "needs the file of a draft model"),
        ({"draft_model": [str(folder / "large.gguf")], "spec": "mtp"}, "fits no model"),
    ):
        with pytest.raises(UsageError, match=said):
            fit(folder, "small", **options)


def test_names_are_those_of_files(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    shutil.copy(folder / "small.gguf", tmp_path / "more/large-00001-of-00001.gguf")
    with pytest.raises(UsageError, match="two models are called 'large'"):
        fit_models([folder / "large.gguf", tmp_path / "more/large-00001-of-00001.gguf"], {})


def test_models_are_described_without_loading_them(folder: Path) -> None:
    several = Several([folder / "small.gguf", folder / "bert.gguf"])
    options = {"lora": [(str(folder / "x.gguf"), 0.5, "mine")], "n_slots": 3, "n_ctx": 48}
    front = several.service(ServerConfig(), EngineChoice(options=options))
    table, got = table_of(front), []
    assert table is not None
    asked: list[tuple[str, str, Any]] = [
        ("POST", "/api/show", {"model": name}) for name in ("small:latest", "mine", "bert")
    ]
    asked += [("GET", f"{path}?model=small", None) for path in ("/props", "/slots", "/lora-adapters")]

    async def run() -> None:
        transport = httpx.ASGITransport(app=App(front))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            got.extend([(await http.request(method, path, json=body)).json() for method, path, body in asked])
        await front.close()

    asyncio.run(run())
    show, mine, bert, props, slots, adapters = got
    assert show["capabilities"] == mine["capabilities"] == ["completion"]
    assert show["template"].startswith("{%")
    assert show["model_info"][f"{show['details']['family']}.context_length"] == 48
    assert bert["capabilities"] == ["embedding"]
    assert (props["total_slots"], props["default_generation_settings"]["n_ctx"], props["model_alias"]) == (
        3,
        48,
        "small",
    )
    assert [slot["is_processing"] for slot in slots] == [False] * 3
    assert [(one["id"], one["scale"]) for one in adapters] == [(0, 0.5)]
    assert [model.state for model in table.models] == ["unloaded"] * 2
    assert table._described == set()


def test_a_server_opens_models_with_what_fits(folder: Path, tmp_path: Path) -> None:
    async def admit(plan: object) -> None:
        """Nothing is loaded here."""

    several = Several([folder / "small.gguf", folder / "heads.gguf"])
    options = {"lora": [(str(folder / "x.gguf"), 0.0, "mine")], "mmproj": "auto"}
    config = ServerConfig(alias=("*",), records=tmp_path / "r", log="json")
    front = several.service(config, EngineChoice(options=options))
    table = table_of(front)
    assert table is not None
    assert table.known("mine") is table.models[0]
    assert table.find("any") is table.models[0]
    service = table._open(table.models[0].fitted, admit, Metrics())
    try:
        service.model.check_name("any")
        assert [one.name for one in service.model.adapters.entries] == ["mine"]
        assert service.records is front.records is not None
    finally:
        asyncio.run(front.close())
        asyncio.run(service.end())
