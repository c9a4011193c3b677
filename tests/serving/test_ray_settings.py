"""Settings of an application on Ray, which are checked without Ray. `api/test_tracing.py` sees that none imports it."""

from __future__ import annotations

from typing import Any

import pytest

from zinc_rt.errors import UsageError
from zinc_rt.ray import application, start
from zinc_rt.ray.settings import read_settings


def test_texts_of_a_command_line_become_numbers() -> None:
    found = read_settings({"model": "m.gguf", "max_replicas": "4", "cpus": "0.5", "strict": "true", "alias": "a, b"})
    assert (found.max_replicas, found.cpus, found.strict) == (4, 0.5, True)
    assert found.config.alias == ("a", "b")
    assert str(found.choice.path) == "m.gguf"
    assert found.choice.options == {"n_slots": 16}
    assert not found.choice.one_process


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"replicas": 2}, "unknown field `replicas`"),
        ({"parallel": 0}, "at `$.parallel`"),
        ({"cpus": -1}, "at `$.cpus`"),
        ({"min_replicas": 3, "max_replicas": 2}, "min_replicas is 3; it must be at most max_replicas, 2"),
        ({"options": {"n_slots": 4}}, "say parallel in its place"),
        ({"alias": "a,,b"}, "alias is 'a,,b'"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as found:
        application(settings)
    assert said in str(found.value)


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'zinc-rt\[ray\]'"):
        application({})
