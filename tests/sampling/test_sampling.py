"""Sampling: parameters, arithmetic, and the chooser against slow independent versions of it."""

import dataclasses
import itertools
import math
from decimal import Decimal, getcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zinc_rt.errors import UsageError
from zinc_rt.sampling.arithmetic import count_to_reach, exp, first_above, largest, log, philox4x32, total, uniform
from zinc_rt.sampling.params import InvalidSamplingParam, SamplingParams, UnknownParameter
from zinc_rt.sampling.sampler import DegenerateLogits, Sampler

PLAIN = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=0)


def plain(**overrides):
    return SamplingParams.with_overrides(PLAIN, **overrides)


def support(logits, draws=300, **overrides):
    """The set of tokens that are ever drawn."""
    sampler = Sampler(plain(**overrides), len(logits))
    return {sampler.sample(np.float32(logits), []).token_id for _ in range(draws)}


# ---- parameters


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", "1"),
        ("temperature", True),
        ("top_k", -1),
        ("top_k", 1.0),
        ("top_p", 1.01),
        ("top_p", -0.01),
        ("min_p", 2),
        ("repetition_penalty", 0),
        ("presence_penalty", math.inf),
        ("frequency_penalty", None),
        ("repeat_last_n", -2),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {1: math.nan}),
        ("logit_bias", {"a": 1.0}),
        ("logit_bias", [1]),
        ("seed", -1),
        ("seed", 2**64),
        ("seed", True),
        ("max_tokens", 0),
        ("stop", ""),
        ("stop", ("a", "")),
        ("stop", ("a", 1)),
        ("stop", 7),
        ("stop_token_ids", (1, -1)),
        ("stop_token_ids", "12"),
        ("logprobs", -1),
        ("ignore_eos", 1),
    ],
)
def test_bad_value_is_refused_with_its_field_and_limits(field, value):
    with pytest.raises(InvalidSamplingParam) as caught:
        SamplingParams(**{field: value})
    error = caught.value
    assert isinstance(error, UsageError)
    assert error.exit_code == 2
    assert error.field == field
    assert field in str(error)
    assert error.limits in str(error)
    assert "\n" not in str(error)


def test_long_values_are_shortened_in_messages():
    with pytest.raises(InvalidSamplingParam) as caught:
        SamplingParams(stop=("y" * 5000, 1))
    assert len(str(caught.value)) < 250


def test_values_are_normalised():
    p = SamplingParams(
        temperature=1, top_k=np.int64(3), stop="END", stop_token_ids=[np.int32(4)], seed=np.uint64(2**63)
    )
    assert p.temperature == 1.0
    assert type(p.temperature) is float
    assert type(p.top_k) is int
    assert p.stop == ("END",)
    assert p.stop_token_ids == (4,)
    assert p.seed == 2**63
    bias = {3: 1}
    q = SamplingParams(logit_bias=bias)
    bias[3] = 2
    assert q.logit_bias == {3: 1.0}


def test_params_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SamplingParams().top_k = 3  # type: ignore[misc]


def test_overrides():
    base = SamplingParams(top_k=7)
    assert SamplingParams.with_overrides(base, seed=3) == SamplingParams(top_k=7, seed=3)
    assert SamplingParams.with_overrides() == SamplingParams()
    with pytest.raises(UnknownParameter) as caught:
        SamplingParams.with_overrides(base, temprature=1.0, topk=3)
    assert caught.value.unknown == ("temprature", "topk")
    assert set(caught.value.known) == {f.name for f in dataclasses.fields(SamplingParams)}
    assert "temperature" in str(caught.value)
    with pytest.raises(InvalidSamplingParam):
        SamplingParams.with_overrides(base, top_p=3)


def test_token_ids_outside_the_vocabulary_are_refused():
    for overrides in ({"logit_bias": {10: 1.0}}, {"stop_token_ids": (10,)}):
        with pytest.raises(InvalidSamplingParam, match="10"):
            Sampler(plain(**overrides), 10)


# ---- arithmetic


def true_exp(x):
    return Decimal(float(x)).exp()


def test_exp_is_within_one_ulp_of_the_true_value():
    getcontext().prec = 40
    rng = np.random.default_rng(5)
    x = -np.concatenate([rng.random(600) * 2, rng.random(600) * 700, np.logspace(-18, 2.8, 300), [0.0, 708.0]])
    y = exp(x)
    worst = max(abs(Decimal(float(b)) - true_exp(a)) / Decimal(math.ulp(float(b))) for a, b in zip(x, y, strict=True))
    assert worst < 1
    assert exp(np.array([0.0, -0.0])).tolist() == [1.0, 1.0]


def scalar_exp(x):
    """The formula of docs/how/sampling.md, one Python operation after the other."""
    if x < -708.0:
        return 0.0
    getcontext().prec = 50
    high, low = float.fromhex("0x1.62e42feep-8"), float.fromhex("0x1.a39ef35793c76p-40")
    k = round(x * float.fromhex("0x1.71547652b82fep+7"))
    r = (x - k * high) - k * low
    p = ((((r * (1 / 120) + 1 / 24) * r + 1 / 6) * r + 0.5) * r + 1.0) * r
    whole, part = divmod(k, 128)
    t = math.ldexp(float(Decimal(2) ** (Decimal(part) / 128)), whole)
    return p * t + t


def test_exp_has_the_bits_of_its_definition():
    x = -np.array([0.0, 1e-9, 0.1, 0.5, 1.0, 2.5, 10.0, 88.7, 300.25, 707.9, 708.0, 708.0000001, 1e300, np.inf])
    expected = [scalar_exp(v) for v in x.tolist()]
    assert exp(x).tolist() == expected
    assert exp(np.tile(x, 5000)).tolist() == expected * 5000  # crosses chunk borders
    more = -np.linspace(0.001, 40.0, 3000)
    assert exp(more).tolist() == [scalar_exp(v) for v in more.tolist()]
    again = x.copy()
    assert exp(again, out=again) is again
    assert again.tolist() == expected


def test_log_is_within_two_ulp_and_fixed():
    getcontext().prec = 40
    rng = np.random.default_rng(6)
    for x in [*(1 + rng.random(300)).tolist(), *np.logspace(0.1, 6, 300).tolist(), 1.5, 2.0, 151936.0]:
        true = Decimal(x).ln()
        assert abs(Decimal(log(x)) - true) <= 2 * Decimal(math.ulp(float(true)))
    assert log(1.0) == 0.0


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # known answers of the Random123 distribution
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(counter, key, expected):
    assert philox4x32(counter, key) == expected


def test_uniform_is_uniform_and_keyed_by_both():
    values = [uniform(seed, step) for seed in (0, 1, 2**64 - 1) for step in range(2000)]
    assert len(set(values)) == len(values)
    assert all(0.0 <= v < 1.0 and v * 2**53 == int(v * 2**53) for v in values)
    counts = np.histogram(values, bins=20, range=(0, 1))[0]
    assert chi_square(counts, np.full(20, 0.05)) < 43.8  # 19 degrees of freedom, p = 0.001
    assert uniform(7, 2**33) != uniform(7, 2)


@pytest.mark.parametrize("step", [0, 1, 2**32 - 1, 2**32, 0x0123456789ABCDEF, 2**64 - 1])
@pytest.mark.parametrize("seed", [0, 2**32 - 1, 2**32, 0xFEDCBA9876543210, 2**64 - 1])
def test_uniform_is_53_bits_of_philox(seed, step):
    """Counter: the step's low and high word, then zeros; key: the seed's."""
    first, second, *_ = philox4x32((step % 2**32, step // 2**32, 0, 0), (seed % 2**32, seed // 2**32))
    assert uniform(seed, step) == (first // 32 * 2**26 + second // 64) / 2**53


few_values = st.lists(st.sampled_from([-math.inf, -2.0, -1.0, 0.0, 0.5, 3.0, math.inf]), min_size=1, max_size=400)


@given(few_values, st.integers(1, 420))
@settings(max_examples=150, deadline=None)
def test_largest_against_a_full_sort(values, k):
    slow = sorted(range(len(values)), key=lambda i: (-values[i], i))[:k]
    assert largest(np.array(values), k).tolist() == sorted(slow)


def test_largest_on_a_big_vocabulary():
    rng = np.random.default_rng(1)
    for x in (rng.standard_normal(50_000), np.round(rng.standard_normal(50_000)), np.zeros(50_000)):
        for k in (1, 40, 700, 49_999):
            slow = np.argsort(-x, kind="stable")[:k]
            assert largest(x, k).tolist() == sorted(slow.tolist())


@given(st.integers(1, 3000), st.floats(0, 1.1), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_count_to_reach_against_a_loop(n, share, seed):
    x = -9 * np.random.default_rng(seed).random(n)
    target = share * float(exp(x).sum())
    total, slow = 0.0, n
    for i, value in enumerate(sorted(x.tolist(), reverse=True)):
        total += float(exp(np.array([value]))[0])
        if total >= target:
            slow = i + 1
            break
    assert count_to_reach(x, target) == slow


# ---- choosing


def chi_square(counts, probabilities):
    expected = probabilities * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


def sum_by_blocks(values: list[float]) -> float:
    """A plain loop over what docs/how/sampling.md says: blocks of 1024 from left to right, then their sums."""
    whole = 0.0
    for start in range(0, len(values), 1024):
        block = values[start]
        for value in values[start + 1 : start + 1024]:
            block = block + value
        whole = block if start == 0 else whole + block
    return whole


def first_above_by_loop(weights: list[float], share: float) -> int:
    """The first at which the sum of the blocks before and of its own block up to it is above share of the total."""
    target, before = share * sum_by_blocks(weights), 0.0
    for start in range(0, len(weights), 1024):
        block = 0.0
        for i in range(start, min(start + 1024, len(weights))):
            block = block + weights[i]
            if before + block > target:
                return i
        before = before + block
    raise AssertionError("no weight is above the share")


def awkward(n: int, seed: int) -> np.ndarray:
    """Positive numbers of such different sizes that another order of adding them gives another sum."""
    rng = np.random.default_rng(seed)
    return rng.random(n) * 2.0 ** rng.integers(-60, 1, n)


BLOCK_SIZES = [1, 2, 1023, 1024, 1025, 2047, 2048, 2049, 3 * 1024, 5000, 20000]


@pytest.mark.parametrize("n", BLOCK_SIZES)
def test_total_adds_blocks_of_1024(n):
    for seed in range(20):
        values = awkward(n, seed)
        assert total(values.copy()) == sum_by_blocks(values.tolist())
    if n > 2048:  # the blocks can be told from one sum from left to right, and from blocks that begin elsewhere
        assert any(total(awkward(n, s)) != float(np.add.accumulate(awkward(n, s))[-1]) for s in range(20))


@pytest.mark.parametrize("n", BLOCK_SIZES)
def test_first_above_against_a_plain_loop(n):
    rng = np.random.default_rng(n)
    for seed in range(10):
        values = awkward(n, seed)
        for share in (0.0, *rng.random(4), 1.0 - 2.0**-53):
            assert first_above(values.copy(), share) == first_above_by_loop(values.tolist(), share)


@pytest.mark.parametrize("n", [1500, 3000, 9000])
def test_first_above_of_some_places_is_that_of_all_with_zeros_between(n):
    rng = np.random.default_rng(n)
    for seed in range(20):
        n_kept = int(rng.integers(1, n))
        places = np.sort(rng.choice(n, n_kept, replace=False))
        if seed % 4 == 0:  # whole blocks without any
            places = places[(places // 1024) % 2 == seed % 2]
            if not len(places):
                continue
        everything = np.zeros(n)
        everything[places] = awkward(len(places), seed)
        for share in (0.0, *rng.random(4), 1.0 - 2.0**-53):
            found = first_above(everything[places].copy(), share, places)
            assert places[found] == first_above_by_loop(everything.tolist(), share)


@pytest.mark.parametrize("edge", [1023, 1024, 2047, 2048])
def test_a_draw_at_the_edge_of_a_block(edge):
    """All the weight beyond a block's edge: the chosen place is the first behind it."""
    weights = np.zeros(4096)
    weights[edge] = 1.0
    assert first_above(weights.copy(), 0.0) == edge
    assert first_above(weights.copy(), 0.5) == edge


@pytest.mark.parametrize("temperature", [pytest.param(0.5, marks=pytest.mark.slow), 2.0])
def test_frequencies_follow_the_softmax(temperature):
    logits = np.float32([0.0, 1.0, -1.0, 2.0, 0.5, -2.0, 1.5, 0.25])
    sampler = Sampler(plain(temperature=temperature, seed=11), 8)
    draws = [sampler.sample(logits, []).token_id for _ in range(10_000)]
    p = np.exp(logits.astype(np.float64) / temperature)
    assert chi_square(np.bincount(draws, minlength=8), p / p.sum()) < 24.3  # 7 degrees of freedom, p = 0.001


def test_successive_draws_are_independent():
    logits = np.float32([0.0, 0.0, 0.0])
    sampler = Sampler(plain(seed=3), 3)
    draws = [sampler.sample(logits, []).token_id for _ in range(9_001)]
    pairs = np.bincount([3 * a + b for a, b in itertools.pairwise(draws)], minlength=9)
    assert chi_square(pairs, np.full(9, 1 / 9)) < 26.1  # 8 degrees of freedom, p = 0.001


def slow_support(logits, top_k, top_p, min_p):
    """Top-k, top-p, min-p one after the other on Python lists, straight from their definitions."""
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if top_k:
        order = order[:top_k]
    weights = [math.exp(logits[i] - logits[order[0]]) for i in order]
    total, running, kept = sum(weights), 0.0, []
    for i, w in zip(order, weights, strict=True):
        kept.append(i)
        running += w / total
        if top_p < 1 and running >= top_p:
            break
    return {i for i in kept if math.exp(logits[i] - logits[order[0]]) >= min_p}


@given(
    st.lists(st.integers(-30, 30), min_size=1, max_size=12),
    st.integers(0, 14),
    st.sampled_from([0.0, 0.13, 0.5, 0.77, 0.951, 1.0]),
    st.sampled_from([0.0, 0.05, 0.3, 0.71, 1.0]),
)
@settings(max_examples=20, deadline=None)
def test_support_against_the_slow_version(tenths, top_k, top_p, min_p):
    logits = [t / 10 for t in tenths]
    kept = slow_support([float(np.float32(v)) for v in logits], top_k, top_p, min_p)
    # At a high temperature everything that is kept is drawn soon.
    drawn = support(logits, draws=200, temperature=50.0, top_k=top_k, top_p=top_p, min_p=min_p)
    assert drawn == kept


def test_filters_see_probabilities_before_temperature():
    """As in llama.cpp's default order, temperature comes last: it does not widen top-p."""
    logits = [3.0, 0.0, 0.0]  # probabilities 0.909, 0.045, 0.045
    assert support(logits, temperature=100.0, top_p=0.9) == {0}
    assert support(logits, temperature=100.0, min_p=0.06) == {0}
    assert support(logits, temperature=100.0) == {0, 1, 2}


def test_ties_at_the_border_go_to_the_lowest_index():
    assert support([1.0] * 10, top_k=3) == {0, 1, 2}
    assert support([1.0] * 10, top_p=0.35) == {0, 1, 2, 3}


def test_big_vocabulary_support():
    rng = np.random.default_rng(2)
    logits = rng.standard_normal(20_000).astype(np.float32)
    logits[rng.choice(20_000, 5, replace=False)] += 9
    for kwargs in ({"top_k": 5}, {"min_p": 0.2}, {"top_p": 0.3}, {"top_k": 500, "top_p": 0.4, "min_p": 0.1}):
        full = {"top_k": 0, "top_p": 1.0, "min_p": 0.0} | kwargs
        kept = slow_support(logits.astype(np.float64).tolist(), **full)
        drawn = support(logits, draws=150, temperature=3.0, **kwargs)
        assert drawn <= kept
        assert len(drawn) > min(3, len(kept) - 1)


def test_greedy_ignores_filters_and_takes_the_first_of_equals():
    assert support([1.0, 5.0, 5.0, 2.0], draws=3, temperature=0.0, top_k=3, top_p=0.1) == {1}
    assert support([math.nan, -3.0, math.nan, -3.0], draws=3, temperature=0.0) == {1}


def naive_penalties(logits, recent, repetition, presence, frequency):
    out = list(logits)
    for token in set(recent):
        out[token] = out[token] * repetition if out[token] <= 0 else out[token] / repetition
        out[token] -= recent.count(token) * frequency + presence
    return out


@given(
    st.lists(st.integers(-20, 20), min_size=6, max_size=6),
    st.lists(st.integers(0, 5), max_size=12),
    st.tuples(
        st.sampled_from([1.0, 1.3, 2.0, 0.5]),
        st.sampled_from([0.0, 0.7, -0.4]),
        st.sampled_from([0.0, 0.3, 1.1]),
    ),
    st.sampled_from([-1, 0, 1, 3, 64]),
)
@settings(max_examples=100, deadline=None)
def test_penalties_against_the_naive_version(tenths, history, penalties, last_n):
    repetition, presence, frequency = penalties
    logits = np.float32([t / 10 for t in tenths])
    recent = history if last_n < 0 else history[max(0, len(history) - last_n) :]
    expected = naive_penalties(logits.astype(np.float64).tolist(), recent, repetition, presence, frequency)
    if last_n == 0:
        expected = logits.tolist()
    params = SamplingParams(
        temperature=0,
        repetition_penalty=repetition,
        presence_penalty=presence,
        frequency_penalty=frequency,
        repeat_last_n=last_n,
    )
    before = logits.copy()
    chosen = Sampler(params, 6).sample(logits, history).token_id
    assert chosen == expected.index(max(expected))
    assert np.array_equal(logits, before)
    scores = logits.astype(np.float64)
    Sampler(params, 6)._adjust(scores, history)
    assert scores.tolist() == expected


def test_penalties_apply_before_the_draw():
    assert support([2.0, 2.0], draws=50, frequency_penalty=100.0) == {0, 1}
    sampler = Sampler(plain(frequency_penalty=100.0), 2)
    assert {sampler.sample(np.float32([2.0, 2.0]), [0, 0]).token_id for _ in range(50)} == {1}


def test_bias():
    assert support([1.0, 9.0, 0.0], draws=200, logit_bias={1: -math.inf}) == {0, 2}
    assert support([1.0, 9.0, 0.0], draws=200, logit_bias={2: math.inf}) == {2}
    assert support([1.0, 9.0, 0.0], draws=200, logit_bias={2: math.inf, 0: math.inf}) == {0, 2}
    assert support([1.0, 9.0, 0.0], draws=9, temperature=0, logit_bias={0: 8.5}) == {0}
    assert support([1.0, 9.0, 0.0], draws=9, temperature=0, logit_bias={2: math.inf, 0: math.inf}) == {0}


def test_forced_tokens_pass_every_filter():
    assert support([0.0] * 9, draws=200, logit_bias={8: math.inf}, top_k=2, top_p=0.2, min_p=0.5) == {8}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_nothing_to_choose_from_is_an_error(temperature, value):
    with pytest.raises(DegenerateLogits, match="all 5 logits"):
        Sampler(plain(temperature=temperature), 5).sample(np.full(5, value, np.float32), [])
    banned = Sampler(plain(temperature=temperature, logit_bias=dict.fromkeys(range(5), -math.inf)), 5)
    with pytest.raises(DegenerateLogits):
        banned.sample(np.zeros(5, np.float32), [])


def test_degenerate_logits():
    inf, nan = math.inf, math.nan
    assert support([nan, 0.0, nan, 0.0], draws=100) == {1, 3}
    assert support([inf, 0.0, inf, nan], draws=100, top_k=3, top_p=0.9, min_p=0.1) == {0, 2}
    assert support([-inf, -inf, -5.0], draws=50, top_k=3) == {2}
    assert support([3.4e38, -3.4e38], draws=50) == {0}
    assert support([1.0, 0.999], draws=50, temperature=1e-310) == {0}
    assert support([0.0], draws=5) == {0}
    assert support([2.0] * 4, draws=100, top_p=0.0) == {0}
    assert support([2.0, 2.0, 1.9], draws=100, min_p=1.0) == {0, 1}


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"logprobs": 2},
        {"logit_bias": {2: 5.0}},
        {"repetition_penalty": 4.0},
        {"presence_penalty": 3.0, "frequency_penalty": 1.0},
        {"temperature": 1.0},
        {"temperature": 0.7, "top_k": 1},
    ],
)
def test_knowing_the_likeliest_token_changes_nothing(overrides):
    rng = np.random.default_rng(3)
    params = plain(**{"temperature": 0.0, **overrides})
    told, untold = Sampler(params, 9), Sampler(params, 9)
    for _ in range(40):
        logits = rng.integers(-2, 3, 9).astype(np.float32)
        logits[rng.integers(9)] = -np.inf
        history = rng.integers(0, 9, 5).tolist()
        assert told.sample(logits, history, int(np.argmax(logits))) == untold.sample(logits, history)
    assert told.step == untold.step == 40


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_the_likeliest_of_no_likely_tokens_is_an_error(value):
    with pytest.raises(DegenerateLogits):
        Sampler(plain(temperature=0.0), 4).sample(np.full(4, value, np.float32), [], 0)


def test_wrong_shape_is_refused():
    with pytest.raises(ValueError, match="shape"):
        Sampler(PLAIN, 5).sample(np.zeros(6, np.float32), [])


# ---- seeds


def test_a_seed_stands_for_one_text():
    """Token n is where the n-th uniform number of the seed falls in the running sum by rising token id."""
    rows = [[math.sin(7.0 * step + 3.0 * i) * 2 for i in range(50)] for step in range(60)]

    def text(seed):
        sampler = Sampler(plain(seed=seed, temperature=0.5, top_k=20), 50)
        return [sampler.sample(np.float32(row), []).token_id for row in rows]

    def slow(seed):
        tokens = []
        for step, row in enumerate(np.float32(rows).tolist()):
            kept = sorted(sorted(range(50), key=lambda i: -row[i])[:20])
            weights = [math.exp((row[i] - max(row)) / 0.5) for i in kept]
            left = uniform(seed, step) * sum(weights)
            for chosen, weight in zip(kept, weights, strict=True):
                left -= weight
                if left < 0:
                    tokens.append(chosen)
                    break
        return tokens

    assert text(5) == text(5) == slow(5)
    assert text(2**64 - 1) == slow(2**64 - 1)
    assert text(5) != text(6)


def test_without_a_seed_each_sampler_draws_its_own_and_shows_it():
    a, b = Sampler(plain(seed=None), 4), Sampler(plain(seed=None), 4)
    assert a.seed != b.seed
    rows = [np.zeros(4, np.float32)] * 40
    first = [a.sample(row, []).token_id for row in rows]
    again = Sampler(plain(seed=a.seed), 4)
    assert [again.sample(row, []).token_id for row in rows] == first


# ---- log-probabilities


def test_logprobs_are_of_the_untouched_distribution():
    logits = np.float32([0.5, -1.0, 3.0, 2.0, 2.0])
    params = plain(logprobs=3, temperature=0.3, logit_bias={1: math.inf}, top_k=2, frequency_penalty=1.0)
    sampled = Sampler(params, 5).sample(logits, [2, 3])
    true = logits.astype(np.float64) - math.log(sum(math.exp(v) for v in logits.tolist()))
    assert sampled.token_id == 1
    assert sampled.logprob == pytest.approx(true[1], abs=1e-14)
    assert [i for i, _ in sampled.top_logprobs] == [2, 3, 4]
    assert [v for _, v in sampled.top_logprobs] == pytest.approx(true[[2, 3, 4]].tolist(), abs=1e-14)


def test_logprobs_off_zero_and_more_than_the_vocabulary():
    logits = np.float32([0.0, 1.0])
    off = Sampler(plain(), 2).sample(logits, [])
    assert (off.logprob, off.top_logprobs) == (None, None)
    zero = Sampler(plain(logprobs=0), 2).sample(logits, [])
    assert zero.top_logprobs == ()
    assert zero.logprob < 0
    assert len(Sampler(plain(logprobs=9), 2).sample(logits, []).top_logprobs) == 2


def test_logprobs_of_degenerate_logits():
    inf = math.inf
    sampled = Sampler(plain(logprobs=3, logit_bias={0: -inf}), 3).sample(np.float32([inf, inf, 1.0]), [])
    assert sampled.token_id == 1
    assert sampled.logprob == pytest.approx(-math.log(2), abs=1e-15)
    assert sampled.top_logprobs[2] == (2, -inf)
