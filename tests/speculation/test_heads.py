"""Drafts of a model's own block: what they are made of whatever happened before, and that texts do not change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

import zinc_rt
from tests.adapters.files import write_adapter
from tests.helpers import random_tokens, soon
from tests.models.families import CASES
from tests.models.families import gemma4_assistant as assistant
from tests.models.families.build import N_VOCAB, Case, Made, write_case
from tests.models.families.drafting import with_block
from zinc_rt.engine.engine import Engine, Options, SequenceChunk
from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGUFFile
from zinc_rt.models import define, define_assistant, define_draft_head
from zinc_rt.models.errors import ModelError
from zinc_rt.models.hidden import hidden_beside
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.request import SamplingRequest
from zinc_rt.sampling.sampler import Sampler
from zinc_rt.speculation.draft_head import Assistant, DraftHead, HeadRows
from zinc_rt.speculation.drafter import DraftText
from zinc_rt.speculation.heads import HeadDrafter, open_head, open_other, with_hidden

MOST = 4
GREEDY = SamplingParams(temperature=0.0)


CASES_WITH_BLOCKS = {
    "copy": with_block(CASES["qwen35"]),
    "qwen35": with_block(CASES["qwen35"]),
    "glm4": with_block(CASES["glm4"]),
    "glm4moe": with_block(CASES["glm4moe"]),
    "deepseek32": with_block(CASES["deepseek32"]),
    "glm-dsa": with_block(CASES["glm-dsa"]),
    "bailingmoe2": CASES["bailingmoe2"],
    "bailingmoe3": with_block(CASES["bailingmoe3-limits"], like=[1], norm="layer_output_norm"),
    "nemotron_h_moe": with_block(CASES["nemotron_h_moe-latent"], like=[2, 4], more=["post_attention_norm"]),
}


def written(path: Path, case: Case, noise: float) -> Made:
    """A model whose block copies the model: without noise every row depends on its token alone, and the block says what
    the model will say. With some, it is right now and then.
    """
    copy = np.concatenate([np.eye(64), np.zeros((64, 64))], axis=1)
    p = f"blk.{case.keys['block_count'] - 1}."
    norms = ("output_norm", f"{p}nextn.enorm", f"{p}nextn.shared_head_norm", f"{p}layer_output_norm")
    given = {f"{name}.weight": [1.0] * 64 for name in norms if f"{name}.weight" in case.shapes}
    given |= {f"{p}nextn.eh_proj.weight": copy.tolist()}
    if f"{p}post_ffw_norm.weight" in case.shapes:  # norms behind both branches
        given |= {name: [noise] * 64 for name in case.shapes if "post_" in name}
    sizes = dict.fromkeys(("attn_output", "ffn_down", "ssm_out"), noise)
    return write_case(path, replace(case, given={**case.given, **given}, sizes=sizes))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("heads")
    return {
        name: written(folder / f"{name}.gguf", case, 0.0 if name == "copy" else 0.03).path
        for name, case in CASES_WITH_BLOCKS.items()
    }


@dataclass
class Loop:
    """Texts on an engine with drafts of lengths that change, as a core would have them."""

    engine: Engine
    drafter: HeadDrafter
    rng: np.random.Generator
    texts: dict[int, list[int]] = field(default_factory=dict)  # by slot
    drafts: list[tuple[list[int], Sequence[int]]] = field(default_factory=list)
    numbers: int = 0
    right: int = 0
    at: dict[int, int] = field(default_factory=dict)  # positions that the sequences hold

    def text(self, slot: int, most: int = 1) -> DraftText:
        return DraftText(self.numbers, slot, self.texts[slot], Sampler(GREEDY, N_VOCAB), 0, most)

    def add(self, prompt: list[int]) -> int:
        slot = self.engine.open_sequence(prompt)
        self.texts[slot], self.at[slot] = [*prompt], self.engine.cache.length(slot)
        self.numbers += 1
        self.drafter.begin(self.text(slot), self.at[slot])
        for start in range(self.at[slot], len(prompt) - 1, 20):
            rows = [SequenceChunk(slot, start, prompt[start : min(start + 20, len(prompt) - 1)])]
            self.engine.step(rows)
            self.drafter.stepped(rows)
        self.at[slot] = len(prompt) - 1
        return slot

    def end(self, slot: int) -> None:
        self.engine.close_sequence(slot)
        del self.texts[slot], self.at[slot]

    def step(self) -> None:
        asked = [slot for slot in self.texts if self.rng.integers(5)]
        texts = [replace(self.text(slot, int(self.rng.integers(1, MOST + 1))), number=self.numbers) for slot in asked]
        drafts = dict(zip(asked, self.drafter.draft(texts), strict=True))
        self.drafts += [([*self.texts[slot]], drafts[slot]) for slot in asked]
        rows = []
        for slot, tokens in self.texts.items():
            draft, n = drafts.get(slot, []), len(tokens) - self.at[slot]
            wanted = range(n - 1, n + len(draft))
            rows.append(SequenceChunk(slot, self.at[slot], [*tokens[self.at[slot] :], *draft], wanted, len(draft)))
        chosen = iter(self.engine.step(rows).tokens.tolist())
        self.drafter.stepped(rows)
        for part in rows:
            self._settle(
                part, [next(chosen) for _ in part.logits_indices], part.tokens[len(part.tokens) - part.n_draft :]
            )

    def _settle(self, part: SequenceChunk, chosen: list[int], draft: Sequence[int]) -> None:
        right = next((i for i, token in enumerate(draft) if token != chosen[i]), len(draft))
        tokens = self.texts[part.seq_id]
        end = len(tokens) + right
        tokens += chosen[: right + 1]
        self.right += right
        self.at[part.seq_id] = end
        if draft:
            self.at[part.seq_id] = self.engine.cache.accept_drafts(part.seq_id, end)
            self.drafter.kept(part.seq_id, self.at[part.seq_id])


class Anew:
    """Drafts without a past: the whole text in one step of the model, and in one of the head."""

    def __init__(self, engine: Engine, head: DraftHead | Assistant) -> None:
        self._engine, self._head = engine, head

    def draft(self, tokens: list[int], n: int) -> list[int]:
        slot = self._engine.open_sequence(salt=None)
        held = len(tokens) - 1
        self._engine.step([SequenceChunk(slot, 0, tokens[:-1])])
        hidden, moves = self._head.hidden(held), self._head.own_cache
        if moves:
            rows = HeadRows(slot, 0, tokens, np.concatenate([np.zeros_like(hidden[:1]), hidden]), wanted=True)
        else:
            rows = HeadRows(slot, held, tokens[-1:], hidden[-1:], wanted=True)
        out: list[int] = []
        while True:
            asked = SamplingRequest(Sampler(GREEDY, N_VOCAB), tokens)
            step = self._head.step([rows], [held], [asked])
            out.append(step.chosen.token().token_id)
            if len(out) == n:
                self._engine.close_sequence(slot)
                return out
            rows = HeadRows(slot, held + len(out) * moves, out[-1:], step.hidden, wanted=True)


def opened(path: Path, n_batch: int = 48) -> Iterator[tuple[GGUFFile, Engine]]:
    options = Options(n_ctx=96, n_batch=n_batch, n_slots=3, threads=1, drafts=True)
    with GGUFFile.open(path) as file, Engine(options) as engine:
        engine.load(file, hidden_beside(define(file)))
        yield file, engine


def talk(loop: Loop, hits: int) -> None:
    """Three texts and a fourth, some of which begin alike, and their drafts. hits: tokens that the second one finds."""
    prompt = random_tokens(1, 37, N_VOCAB - 2)
    first = loop.add(prompt)
    for _ in range(6):
        loop.step()
    second = loop.add([*prompt[:34], 5, 6])
    assert loop.engine.cache.stats().hits == hits
    loop.add(prompt[:3])
    for _ in range(8):
        loop.step()
    loop.end(first)
    loop.add(loop.texts[second][:-1])
    for _ in range(4):
        loop.step()
    loop.engine.cache.check_integrity()
    assert len(loop.drafts) > 25


@pytest.mark.parametrize("name", soon(("qwen35", "glm4moe"), [name for name in CASES_WITH_BLOCKS if name != "copy"]))
def test_a_draft_does_not_depend_on_the_past(name: str, models: dict[str, Path]) -> None:
    """Guesses that were wrong, texts beside it, rows of several steps at once, pages of another text: the head sees
    what it would see of the same text alone.
    """
    for (file, engine), (again, other) in zip(opened(models[name]), opened(models[name], 96), strict=True):
        loop = Loop(engine, open_head(engine, file, MOST, 0), np.random.default_rng(2))
        recurrent = name in ("qwen35", "bailingmoe3", "nemotron_h_moe")
        talk(loop, 0 if recurrent else 32)  # they have no copy of their state there
        assert 5 < loop.right < sum(len(draft) for _, draft in loop.drafts) - 5
        found = define_draft_head(again)
        assert found is not None
        anew = Anew(other, DraftHead(other, again, found, MOST))
        for tokens, draft in loop.drafts:
            if draft or not recurrent:  # none where the copy of a state lies too far back
                assert list(draft) == anew.draft(tokens, len(draft))


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A large model and its assistant."""
    folder = tmp_path_factory.mktemp("gemma")
    large = write_case(folder / "large.gguf", CASES["gemma4"])
    return large.path, write_case(folder / "assistant.gguf", assistant.case(CASES["gemma4"])).path


def test_an_assistant_does_not_depend_on_the_past(gemma: tuple[Path, Path]) -> None:
    large, own = gemma
    for (file, engine), (again, other) in zip(opened(large), opened(large, 96), strict=True):
        loop = Loop(engine, open_other(engine, file, define(file).info, own, MOST, 0), np.random.default_rng(2))
        talk(loop, 32)
        with GGUFFile.open(own) as small:
            anew = Anew(other, Assistant(other, again, small, define_assistant(small, again, define(again).info), MOST))
            for tokens, draft in loop.drafts:
                assert list(draft) == anew.draft(tokens, len(draft))
        loop.drafter.close()


def test_a_block_in_a_file_of_its_own(models: dict[str, Path], tmp_path: Path) -> None:
    """It drafts what the same block in the model's file does."""
    whole = with_block(CASES["qwen35"])
    shapes = {
        name: shape for name, shape in whole.shapes.items() if name.startswith(("token_embd", "output", "blk.3."))
    }
    with GGUFFile.open(models["qwen35"]) as file:
        given = {name: file.raw(name).view(np.float32).reshape(shape).tolist() for name, shape in shapes.items()}
    case = replace(whole, shapes=shapes, given=given, sizes={})
    own = write_case(tmp_path / "head.gguf", case).path
    drafts = []
    for opens in (open_head, open_other):
        for file, engine in opened(models["qwen35"]):
            if opens is open_head:
                drafter = open_head(engine, file, MOST, 0)
            else:
                drafter = open_other(engine, file, define(file).info, own, MOST, 0)
            loop = Loop(engine, drafter, np.random.default_rng(7))
            loop.add(random_tokens(3, 9, N_VOCAB - 2))
            for _ in range(6):
                loop.step()
            drafts.append(loop.drafts)
            drafter.close()
    assert drafts[0] == drafts[1]
    with GGUFFile.open(models["qwen35"]) as file:
        definition = define(file)
        longer = replace(definition, info=replace(definition.info, n_layers=4))
        with pytest.raises(UsageError, match="drafts for another model: n_layers is 3, of this one 4"):
            with_hidden(file, longer, own)


def test_a_block_that_is_always_right(models: dict[str, Path]) -> None:
    for file, engine in opened(models["copy"]):
        loop = Loop(engine, open_head(engine, file, MOST, 0), np.random.default_rng(5))
        loop.add(random_tokens(3, 9, N_VOCAB - 2))
        for _ in range(6):
            loop.step()
        assert loop.right == sum(len(draft) for _, draft in loop.drafts) > 10


@pytest.mark.parametrize("name", soon(("glm4moe", "gemma4", "bailingmoe3"), [*CASES_WITH_BLOCKS, "gemma4"]))
def test_texts_stay_the_same(name: str, models: dict[str, Path], gemma: tuple[Path, Path]) -> None:
    path, own = (models[name], None) if name in models else gemma
    texts = {}
    for spec, small in (("off", None), ("mtp", own)):
        with zinc_rt.load(path, device="cpu", threads=1, n_ctx=96, spec=spec, draft_model=small) as model:
            texts[spec] = [
                model.generate(prompt, max_tokens=40, temperature=temperature, seed=4).token_ids
                for prompt in ("hello there", "the cat sat on")
                for temperature in (0.0, 0.9)
            ]
    assert texts["mtp"] == texts["off"]


def test_texts_with_an_adapter_stay_the_same(models: dict[str, Path], tmp_path: Path) -> None:
    """What guesses has no adapter; what checks has."""
    with GGUFFile.open(models["glm4moe"]) as file:
        shapes = {name: t.shape for name, t in file.tensors.items() if name.startswith("blk.0.")}
    write_adapter(tmp_path / "a.gguf", "glm4moe", shapes, ("attn_q", "attn_output", "ffn_down"), size=0.2)
    texts = {}
    for spec, lora in (("off", None), ("off", "a"), ("mtp", "a"), ("ngram", "a")):
        given = None if lora is None else tmp_path / "a.gguf"
        with zinc_rt.load(models["glm4moe"], device="cpu", threads=1, n_ctx=96, spec=spec, lora=given) as model:
            texts[spec, lora] = model.generate("the cat sat on", max_tokens=30, temperature=0.9, seed=4).token_ids
    assert texts["off", None] != texts["off", "a"] == texts["mtp", "a"] == texts["ngram", "a"]


@pytest.mark.slow
def test_texts_of_an_emulated_gpu(models: dict[str, Path]) -> None:
    """Its sampled steps leave the logits where they are, and hand out hidden states all the same."""
    texts = []
    for spec, device in (("off", "cpu"), ("mtp", "emu")):
        with zinc_rt.load(models["copy"], device=device, n_ctx=64, spec=spec) as model:
            texts.append([model.generate("hello", max_tokens=8, temperature=t, seed=4).token_ids for t in (0.0, 0.8)])
    assert texts[0] == texts[1]


def test_models_without_a_block_are_refused(tmp_path: Path) -> None:
    path = write_case(tmp_path / "none.gguf", CASES["qwen35"]).path
    with pytest.raises(UsageError, match=r"spec is 'mtp', but .*none\.gguf of architecture 'qwen35' has no block"):
        zinc_rt.load(path, device="cpu", spec="mtp")
    with pytest.raises(UsageError, match=r"spec is 'mtp', but .*none\.gguf of architecture 'qwen35' has no block"):
        zinc_rt.load(path, device="cpu", spec="mtp", draft_model=path)
    other = write_case(tmp_path / "other.gguf", CASES["qwen3"]).path
    with pytest.raises(ModelError, match=r"is of architecture 'qwen3'; what drafts from another"):
        zinc_rt.load(path, device="cpu", spec="mtp", draft_model=other)
