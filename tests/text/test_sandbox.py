"""Templates that would run or grow without end are stopped, in little time and memory."""

from __future__ import annotations

import tracemalloc

import pytest

from zinc_rt.text import ChatTemplate, ChatTemplateError
from zinc_rt.text.template_limits import MAX_SOURCE, MAX_STEPS, MAX_TEXT


def render(source: str) -> str:
    return ChatTemplate({"default": source}, {}, None).render([])


@pytest.mark.parametrize(
    "source",
    [
        "{% set r = range(99999) %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
        "{% set r = range(99999) %}{% for a in r %}{% for b in r if b < 0 %}{% endfor %}{% endfor %}",
        "{% set r = range(99999) %}{% for a in r %}{{ r | sum }}{% endfor %}",
        "{% set r = range(99999) %}{% for a in r %}{{ r | map('string') | reject('none') | list | last }}{% endfor %}",
    ],
)
def test_long_runs(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zinc_rt.text.template_limits.MAX_STEPS", 100_000)
    with pytest.raises(ChatTemplateError, match="it runs for more than 100000 steps"):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' * 10**9 }}",
        "{{ 10**9 * 'x' }}",
        "{{ [0] * 10**9 }}",
        "{% set ns = namespace(t='xxxxxxxx') %}{% for i in range(99) %}{% set ns.t = ns.t + ns.t %}{% endfor %}",
        "{% set ns = namespace(t='xxxxxxxx') %}{% for i in range(99) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}",
        "{% set ns = namespace(t=[1]) %}{% for i in range(99) %}{% set ns.t = ns.t + ns.t %}{% endfor %}",
        "{{ 'x' | center(10**9) }}",
        "{{ 'x'.ljust(10**9) }}",
        "{{ 'x'.zfill(10**9) }}",
        "{{ '\t'.expandtabs(10**9) }}",
        "{{ 'x' | indent(10**9, true) }}",
        "{{ ('x' * 10**6).replace('x', 'y' * 10**6) }}",
        "{{ ('x' * 10**6) | replace('x', 'y' * 10**6) }}",
        "{{ ('x' * 10**6).join(['a'] * 10**5) }}",
        "{{ (['x' * 10**6] * 10**5) | join }}",
        "{{ [1] | batch(10**9, 0) | list }}",
        "{{ [1] | slice(10**9) | list }}",
        "{{ [[1]] | tojson(indent=10**9) }}",
        "{% set big = 'x' * 10**7 %}{{ big }}{{ big }}",
    ],
)
def test_large_values(source: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ChatTemplateError, match=f"the limit is {MAX_TEXT}"):
            render(source)
        assert tracemalloc.get_traced_memory()[1] < 12 * MAX_TEXT
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{{ 7 ** (10 ** 9) }}", "a power of more than"),
        ("{{ 2 ** 99999999 }}", "a power of more than"),
        ("{{ '%999999999d' % 1 }}", "a width of five or more digits"),
        ("{{ '%*d' % (10**9, 1) }}", "or one taken from a value"),
        ("{{ '%999999999d' | format(1) }}", "a width of five or more digits"),
        ("{{ '{:999999999}'.format(1) }}", "a width of five or more digits"),
        ("{{ range(10**9) | list }}", "OverflowError: Range too big"),
    ],
)
def test_large_results_of_small_expressions(source: str, says: str) -> None:
    with pytest.raises(ChatTemplateError, match=says) as caught:
        render(source)
    assert caught.value.line == 1


def test_a_huge_source() -> None:
    with pytest.raises(
        ChatTemplateError, match=f"the source has {MAX_SOURCE + 1} characters, the limit is {MAX_SOURCE}"
    ):
        render("x" * (MAX_SOURCE + 1))


@pytest.mark.parametrize(
    "source", ["{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "{% if 1 %}" * 3000 + "{% endif %}" * 3000]
)
def test_deep_nesting(source: str) -> None:
    with pytest.raises(ChatTemplateError):
        render(source)


def test_ordinary_work_is_far_from_the_limit() -> None:
    loop = "{% for i in range(5000) %}{% set ns.t = ns.t ~ loop.index ~ ' ' %}{% endfor %}"
    source = "{% set ns = namespace(t='') %}" + loop + "{{ ns.t }}"
    assert render(source).split() == [str(i) for i in range(1, 5001)]
    assert MAX_STEPS >= 1_000_000


def test_renderings_are_counted_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zinc_rt.text.template_limits.MAX_STEPS", 1000)
    chat = ChatTemplate({"default": "{% for i in range(900) %}{% endfor %}"}, {}, None)
    for _ in range(3):
        assert chat.render([]) == ""
