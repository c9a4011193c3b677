"""The benchmark of agents: what counts as read again, what an edit changes, and that its models load."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from zinc_rt.gguf import GGUFFile
from zinc_rt.models import define


def test_tokens_read_again(bench: dict[str, ModuleType]) -> None:
    agent = bench["agent"]
    assert agent.Turn(0, 3, False, common=100, cached=90, seconds=1.0).again == 10
    assert agent.Turn(0, 3, False, common=100, cached=112, seconds=1.0).again == 0  # of the other agent's text
    assert [agent.common_tokens([1, 2, 3], new) for new in ([1, 2, 4], [1, 2, 3, 4], [1], [4])] == [2, 3, 1, 0]


def test_an_edit_changes_one_token(bench: dict[str, ModuleType]) -> None:
    agent = bench["agent"]
    made = agent.Agent(0, np.random.default_rng(0), [])
    made.append(41)
    before = list(made.text)
    made.edit()
    assert agent.common_tokens(before, made.text) == 20
    assert before[21:] == made.text[21:]
    assert all(agent.FIRST_LETTER <= token <= agent.LAST_LETTER for token in made.text)


def test_a_row_of_the_table(bench: dict[str, ModuleType]) -> None:
    agent = bench["agent"]
    turns = [agent.Turn(0, 0, False, 0, 0, 9.0)]
    turns += [agent.Turn(0, n, False, 100 * n, 100 * n - n, float(n), n != 1 or None) for n in (1, 2, 3)]
    turns += [agent.Turn(0, 4, True, 200, 150, 7.0, True)]
    assert agent.row("windows", "ours", turns) == "| windows | ours | 3 | 6 | 50 | 2.00 | 2.50 | 7.00 | yes |"
    turns[2] = agent.Turn(0, 2, False, 200, 198, 2.0, False)
    assert agent.row("windows", "ours", turns).endswith("| no |")


@pytest.mark.parametrize("kind", ["attention", "delta-net", "short-conv", "windows"])
def test_models_can_be_read(bench: dict[str, ModuleType], tmp_path: Path, kind: str) -> None:
    """And tokens are bytes, so that an answer's ids follow from its text."""
    assert kind in bench["agent"].KINDS
    path = tmp_path / "model.gguf"
    bench["random_model"].write(path, f"agent-{kind}-q8_0")
    with GGUFFile.open(path) as file:
        assert define(file).info.n_vocab == 320
        tokens = file.metadata["tokenizer.ggml.tokens"]
        assert "".join(str(token) for token in tokens[97:123]) == "abcdefghijklmnopqrstuvwxyz"
