"""Options of speculation: the same text, and one line where they are wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Outcome
from zinc_rt.llm.load import built_in_model

Zinc = Callable[..., Outcome]
RUN = ("run", "-p", "One, two, three, one, two, three, one,", "-n", 24, "--seed", 3, "--device", "cpu")


def test_the_text_is_the_same(zinc: Zinc) -> None:
    plain = zinc(*RUN)
    assert plain.code == 0
    for options in (("--spec", "ngram", "--draft-max", 5), ("-md", built_in_model())):
        assert zinc(*RUN, *options).out == plain.out


def test_wrong_options(zinc: Zinc, tiny: Path, tmp_path: Path) -> None:
    for code, said, options in (
        (2, "spec is 'heads'; known: off, ngram, draft, mtp", ("--spec", "heads")),
        (2, "spec is 'draft', which needs the file of a draft model", ("--spec", "draft")),
        (2, "draft_max is 65, it must be a whole number between 1 and 64", ("--spec", "ngram", "--draft-max", 65)),
        (1, "none.gguf: cannot be opened", ("-md", tmp_path / "none.gguf")),
        (2, "the draft model has another vocabulary: token", ("-md", tiny)),
    ):
        outcome = zinc(*RUN, *options)
        assert outcome.code == code
        assert said in outcome.error
        assert "Traceback" not in outcome.error
