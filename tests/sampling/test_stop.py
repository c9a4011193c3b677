"""Stop strings: the streaming matcher against a search of the whole text, for any way to cut it."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zinc_rt.sampling.stop import StopMatcher


def oracle(text, stops):
    """The text up to the stop string that is complete first; of several, the longest."""
    for end in range(1, len(text) + 1):
        done = [s for s in stops if text[:end].endswith(s)]
        if done:
            longest = max(done, key=len)
            return text[: end - len(longest)], longest
    return text, None


def stream(pieces, stops):
    """Run the matcher; returns text, match and the text after every piece."""
    matcher, shown, states = StopMatcher(stops), "", []
    for piece in pieces:
        emitted, stopped = matcher.add(piece)
        shown += emitted
        states.append(shown)
        assert stopped == (matcher.matched is not None)
        if stopped:
            break
    return shown + matcher.flush(), matcher.matched, states


small = st.text(alphabet="ab<", max_size=30)
stop_lists = st.lists(st.text(alphabet="ab<", min_size=1, max_size=4), max_size=4)


@given(small, stop_lists, st.data())
@settings(max_examples=200, deadline=None)
def test_any_cut_gives_what_the_whole_text_gives(text, stops, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    borders = [0, *cuts, len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(borders)]
    expected, match = oracle(text, stops)
    shown, matched, _ = stream(pieces, stops)
    assert (shown, matched) == (expected, match)


@given(small, stop_lists)
@settings(max_examples=300, deadline=None)
def test_holds_back_exactly_what_could_still_become_a_stop_string(text, stops):
    expected, match = oracle(text, stops)
    _, _, states = stream(list(text), stops)
    for n, shown in enumerate(states, start=1):
        if match is not None and n == len(states):
            assert shown == expected
            continue
        seen = text[:n]
        held = [k for k in range(len(seen) + 1) if k and any(s.startswith(seen[-k:]) for s in stops)]
        assert shown == seen[: len(seen) - max(held, default=0)]


def test_a_stop_string_over_several_tokens_is_never_shown():
    matcher = StopMatcher(["\n\nUser:"])
    assert matcher.add("Hello.") == ("Hello.", False)
    assert matcher.add("\n") == ("", False)
    assert matcher.add("\nUs") == ("", False)
    assert matcher.add("er: again") == ("", True)
    assert matcher.add("more") == ("", True)
    assert matcher.flush() == ""
    assert matcher.matched == "\n\nUser:"


def test_a_false_alarm_is_given_back():
    matcher = StopMatcher(["<end>"])
    assert matcher.add("a <e") == ("a ", False)
    assert matcher.add("gg") == ("<egg", False)
    assert matcher.add(" <en") == (" ", False)
    assert matcher.flush() == "<en"
    assert matcher.flush() == ""


def test_first_complete_wins_and_the_longest_of_those():
    assert stream(["xabcd"], ["abcd", "bc"])[:2] == ("xa", "bc")
    assert stream(["xabc"], ["bc", "abc"])[:2] == ("x", "abc")


def test_without_stop_strings_nothing_is_held():
    assert StopMatcher([]).add("anything") == ("anything", False)


def test_an_empty_stop_string_is_refused():
    with pytest.raises(ValueError, match="empty"):
        StopMatcher(["a", ""])
