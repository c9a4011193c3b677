"""The order in which servers are tried."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from zinc_rt.serving.route.ranking import MORE, ranked

names = st.sets(st.text(min_size=1, max_size=8), min_size=1, max_size=6)


@settings(deadline=None)
@given(st.binary(max_size=16), names, st.data())
def test_a_server_that_goes_moves_only_its_own_keys(key: bytes, servers: set[str], data: st.DataObject) -> None:
    before = ranked(key, dict.fromkeys(servers, 0))
    assert sorted(before) == sorted(servers)
    gone = data.draw(st.sampled_from(sorted(servers)))
    assert ranked(key, dict.fromkeys(servers - {gone}, 0)) == [name for name in before if name != gone]


def test_keys_spread_over_all_servers() -> None:
    firsts = {ranked(bytes([n]), {"a": 0, "b": 0, "c": 0})[0] for n in range(40)}
    assert firsts == {"a", "b", "c"}


def test_a_busy_server_keeps_its_prefix_up_to_the_bounds() -> None:
    first, second = ranked(b"key", {"a": 0, "b": 0})
    assert ranked(b"key", {first: MORE, second: 0})[0] == first
    assert ranked(b"key", {first: MORE + 1, second: 0})[0] == second
    assert ranked(b"key", {first: 90, second: 60})[0] == first
    assert ranked(b"key", {first: 91, second: 60})[0] == second
    assert ranked(b"key", {first: 4, second: 0}, more=4)[0] == first
    assert ranked(b"key", {first: 5, second: 0}, more=4)[0] == second
