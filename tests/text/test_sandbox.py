"""Templates that would break out, run or grow without end are stopped; the runtime's own process does not notice."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest
from jinja2.defaults import DEFAULT_FILTERS

from tests.helpers import soon
from zinc_rt.text import ChatTemplate, ChatTemplateError
from zinc_rt.text.template_limits import TemplateLimits
from zinc_rt.text.template_process import TemplateProcess

MIB = 1 << 20
SHORT = TemplateLimits(address_space=256 * MIB, cpu_seconds=1, seconds=30)
BYTES = "{% set b = 'x'.encode() %}"
ROUNDS = "{% for i in range(99999) %}"
LONG = "{% set a = 'x' * (15 * 10**6) %}" + ROUNDS
MEMORY = "it takes more than 256 MiB of memory to render"
RANGE = "OverflowError: Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000)."
TEXT = f"it makes a text of more than {16 * MIB} characters"

# What str.format does with the first argument of a call is no business of the sandbox, unless it wraps it.
READS = "{0.__init__.__globals__[__builtins__]}"
BREAKOUTS = (
    f"{{{{ ('{READS}' | attr('format'))(cycler) }}}}",
    f"{{{{ (['{READS}'] | map('attr', 'format') | first)(cycler) }}}}",
    f"{{% set call = '{READS}' | attr('format') %}}{{{{ call(cycler) }}}}",
    f"{{% set ns = namespace(f='{READS.replace('0', 'a')}' | attr('format_map')) %}}{{{{ ns.f({{'a': cycler}}) }}}}",
    f"{{% set call = '{READS}'.format %}}{{{{ call(cycler) }}}}",
    f"{{{{ '{READS}'.format(cycler) }}}}",
    f"{{% macro m(call) %}}{{{{ call(cycler) }}}}{{% endmacro %}}{{{{ m('{READS}' | attr('format')) }}}}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ (cycler | attr('__init__')).__globals__ }}",
    "{{ cycler['__init__']['__globals__'] }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ ([''] | map(attribute='__class__') | first).__mro__ }}",
    "{{ raise_exception.__globals__['json'] }}",
    "{{ strftime_now.__code__.co_consts }}",
    "{{ self.__init__.__globals__ }}",
)
LARGE = {
    "{{ (1).to_bytes(10**9, 'big') }}": MEMORY,
    "{{ '{:{}}'.format(1, 900000000) }}": MEMORY,
    "{{ '{:9{}}'.format(1, '00000000') }}": MEMORY,
    "{{ '{:999999999}'.format(1) }}": MEMORY,
    "{{ ('x' * 10**6).translate({120: 'y' * 1000}) }}": MEMORY,
    BYTES + "{{ (b * 10**9) | length }}": MEMORY,
    BYTES + "{{ b.center(10**9) | length }}": MEMORY,
    BYTES + "{{ b.ljust(10**9) | length }}": MEMORY,
    BYTES + "{{ b.zfill(10**9) | length }}": MEMORY,
    BYTES + "{{ (b * 10**6).replace(b, b * 1000) | length }}": MEMORY,
    BYTES + "{{ (b * 10**6).join([b] * 10**6) | length }}": MEMORY,
    "{{ ([1] * 1000) | tojson(separators=('x' * 10**6, ':')) }}": MEMORY,
    "{{ [[1]] | tojson(indent=10**9) }}": MEMORY,
    "{{ ('x ' * 10**5) | wordwrap(1, true, 'y' * 10**4) }}": MEMORY,
    "{% set b %}" + ROUNDS + "{{ 'x' * 10**6 }}{% endfor %}{% endset %}": MEMORY,
    "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% else %}{{ 'x' * 10**6 }}{% endif %}{% endmacro %}"
    "{{ m(20) | length }}": MEMORY,
    "{% filter upper %}" + ROUNDS + "{{ 'x' * 10**6 }}{% endfor %}{% endfilter %}": MEMORY,
    "{{ 'x' * 10**9 }}": MEMORY,
    "{{ [0] * 10**9 }}": MEMORY,
    "{{ '%999999999d' % 1 }}": MEMORY,
    "{{ '%*d' % (10**9, 1) }}": MEMORY,
    "{{ 'x' | center(10**9) }}": MEMORY,
    "{{ '\t'.expandtabs(10**9) }}": MEMORY,
    "{{ 'x' | indent(10**9, true) }}": MEMORY,
    "{{ ('x' * 10**6) | replace('x', 'y' * 10**6) }}": MEMORY,
    "{{ (['x' * 10**6] * 10**5) | join }}": MEMORY,
    "{{ [1] | batch(10**9, 0) | list }}": MEMORY,
    "{% set ns = namespace(t='xxxxxxxx') %}{% for i in range(99) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}": MEMORY,
    "{{ 'x' * 17 * 10**6 }}": TEXT,
    "{% set big = 'x' * 10**7 %}{{ big }}{{ big }}": TEXT,
    "{{ range(10**9) | list }}": RANGE,
    "{{ lipsum(10**6) }}": "'lipsum' is undefined",
}
LASTING = (
    ROUNDS + "{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    LONG + "{{ 'zz' in a }}{% endfor %}",
    LONG + "{% if a.count('y') %}{% endif %}{% endfor %}",
    LONG + "{% if a.find('y') == 1 %}{% endif %}{% endfor %}",
    LONG + "{% if a | upper == 1 %}{% endif %}{% endfor %}",
    LONG + "{% if a == a ~ 'b' %}{% endif %}{% endfor %}",
    "{% set r = range(99999) %}" + ROUNDS + "{{ r | sum }}{% endfor %}",
    "{% set r = range(99999) %}" + ROUNDS + "{{ r | map('string') | reject('none') | list | last }}{% endfor %}",
    "{% set a = 'x ' * 10**6 %}" + ROUNDS + "{% if a | wordcount == 1 %}{% endif %}{% endfor %}",
    "{{ 7 ** (10 ** 9) % 10 }}",
    "{% set ns = namespace(n=3) %}{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
    "{{ [1] | slice(10**9) | list }}",
)


_ready: dict[TemplateLimits, TemplateProcess] = {}


@pytest.fixture(scope="module", autouse=True)
def _end() -> Iterator[None]:
    yield
    for process in _ready.values():
        process.close()


def render(source: str, limits: TemplateLimits = SHORT) -> str:
    """One process renders all; where one is ended, the next starts."""
    chat = ChatTemplate({"default": source}, {}, None, limits)
    chat._process = _ready.setdefault(limits, chat._process)
    return chat.render([])


def refused(source: str, limits: TemplateLimits = SHORT) -> str:
    """What is said about a template, which costs this process next to nothing."""
    tracemalloc.start()
    try:
        with pytest.raises(ChatTemplateError) as caught:
            render(source, limits)
        assert tracemalloc.get_traced_memory()[1] < MIB + 3 * len(source)
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 350
    return message


@pytest.mark.parametrize("source", BREAKOUTS)
def test_a_template_does_not_reach_pythons_internals(source: str) -> None:
    message = refused(source)
    assert message.startswith("chat template, line 1: access to attribute '__")
    assert message.endswith(" object is unsafe.")


# One of each kind by default; each that goes over a limit ends its process.
LARGE_SOON = [
    "{{ (1).to_bytes(10**9, 'big') }}",
    "{{ '{:999999999}'.format(1) }}",
    "{% set b %}" + ROUNDS + "{{ 'x' * 10**6 }}{% endfor %}{% endset %}",
    "{{ [0] * 10**9 }}",
    "{{ ('x' * 10**6) | replace('x', 'y' * 10**6) }}",
    *(source for source, says in LARGE.items() if says != MEMORY),
]
LASTING_SOON = (LASTING[1], LASTING[3], LASTING[8], LASTING[10])


@pytest.mark.parametrize("source", soon(LARGE_SOON, LARGE))
def test_large_values(source: str) -> None:
    assert refused(source).removeprefix("chat template, line 1: ").removeprefix("chat template: ") == LARGE[source]


@pytest.mark.parametrize("source", soon(LASTING_SOON, LASTING))
def test_long_runs(source: str) -> None:
    """By the clock, as processor time is limited in whole seconds."""
    limits = TemplateLimits(seconds=0.2)
    assert refused(source, limits) == "chat template: it is not rendered after 0.2 s"


@pytest.mark.slow  # `test_template_process.py` goes over this limit by default
@pytest.mark.parametrize("source", [LASTING[2], "{{ 7 ** (10 ** 9) }}"])
def test_much_processor_time(source: str) -> None:
    """Also in one operation of a running template, and in the folding of constants when one is compiled."""
    assert refused(source) == "chat template: it takes more than 1 s of processor time to render"


def test_a_huge_source() -> None:
    message = f"chat template: the source has {MIB + 1} characters, the limit is {MIB}"
    assert refused("x" * (MIB + 1)) == message
    assert render("x" * MIB) == "x" * MIB


@pytest.mark.parametrize(
    "source",
    [
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{{ " + "-" * 5000 + "1 }}",
        "{{ 1" + ".a" * 5000 + " }}",
        "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    ],
)
def test_deep_nesting(source: str) -> None:
    assert "RecursionError: maximum recursion depth exceeded" in refused(source)


def test_ordinary_work_is_far_from_the_limits() -> None:
    loop = "{% for i in range(5000) %}{% set ns.t = ns.t ~ loop.index ~ ' ' %}{% endfor %}"
    source = "{% set ns = namespace(t='') %}" + loop + "{{ ns.t }}"
    assert render(source).split() == [str(i) for i in range(1, 5001)]


def test_a_text_of_the_greatest_size() -> None:
    limits = TemplateLimits(seconds=60)
    source = "{% set n = 16 * 1024 * 1024 %}{{ '\U0001f600' * n }}"
    assert render(source, limits) == "\U0001f600" * (16 * MIB)
    assert refused(source + "!", limits) == f"chat template: {TEXT}"


def test_the_line_that_takes_too_much_memory() -> None:
    assert refused("{% set n = 10**9 %}\n\n{{ 'x' * n }}\n") == f"chat template, line 3: {MEMORY}"


def test_filters_need_no_file_once_the_process_has_given_them_up() -> None:
    sources = {name: f"{{{{ ('<a> &amp; www.b.com ' * 9) | {name} }}}}" for name in DEFAULT_FILTERS}
    sources |= {name + "(1)": f"{{{{ 7 | {name}(1) }}}}" for name in DEFAULT_FILTERS}
    said = dict.fromkeys(sources, "")
    process = TemplateProcess(SHORT)
    for name, source in sources.items():
        try:
            process.render(source, {})
        except ChatTemplateError as error:
            said[name] = str(error)
    process.close()
    assert {name: text for name, text in said.items() if "OSError" in text or "ImportError" in text} == {}
    assert said["pprint"] == said["striptags"] == said["wordwrap"] == said["urlize"] == said["tojson"] == ""
