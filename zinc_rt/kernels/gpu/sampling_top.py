"""The best K of many scores, in order: blocks leave their first K, found in LDS, until one block is left.

The order is total: the greater score first, of equal ones the lower token id. Candidates are a key (`order_key`) and an
id each; a place without one has key 0 and comes last. K: a power of two up to 1024.
"""

from __future__ import annotations

from zinc_rt.kernels.sampling_math import order_key
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import barrier, count_trailing_zeros, select, shared, target_has, workgroup_id, workitem_id
from zinc_rt.lang.types import f64, ptr, u32, u64

BLOCK = 4096
"""Scores, or candidates, of which a workgroup finds the first."""
LANES = 1024
RESIDENT_BLOCK = 1024
"""The same in a resident program, whose workgroups are smaller, and share LDS with all else that it does."""
RESIDENT_LANES = 256
NO_ID = 0xFFFFFFFF


@inline
def lanes():
    """Work-items of a workgroup, static."""
    return RESIDENT_LANES if target_has("resident") else LANES


@inline
def block():
    """`BLOCK` or `RESIDENT_BLOCK`, static."""
    return RESIDENT_BLOCK if target_has("resident") else BLOCK


@inline
def sorted_size(count: u32, k: u32):
    """The least power of two that holds both."""
    size: u32 = k
    while size < count:
        size <<= 1
    return size


@inline
def put_in_order(keys, ids, i: u32, j: u32, falling):
    """Exchange two candidates where they do not stand as wanted."""
    key = keys[i]
    other = keys[j]
    token = ids[i]
    other_token = ids[j]
    other_first = (other > key) | ((other == key) & (other_token < token))
    if other_first == falling:
        keys[i] = other
        keys[j] = key
        ids[i] = other_token
        ids[j] = token


@inline
def sort_runs(keys, ids, size: u32, k: u32):
    """Bitonic sort of candidates in LDS into runs of k, falling and rising in turn."""
    width: u32 = 2
    while width <= k:
        distance: u32 = width >> 1
        while distance > 0:
            barrier()
            for pair in range(workitem_id(), size >> 1, lanes()):
                i = pair * 2 - (pair & (distance - 1))
                put_in_order(keys, ids, i, i + distance, (i & width) == 0)
            distance >>= 1
        width <<= 1


@inline
def merge_runs(keys, ids, size: u32, k: u32):
    """From runs of k, falling and rising in turn, to the first k of all, falling, at the start.

    A falling and a rising run are a bitonic sequence: of the places at distance k the better ones are the first k of
    both, and bitonic again, so log2 k passes sort them. The other half falls away each time.
    """
    shift = count_trailing_zeros(k)
    stride: u32 = k  # from a run to the next that still counts
    live: u32 = size
    while live > k:
        live >>= 1
        barrier()
        for at in range(workitem_id(), live, lanes()):
            i = (at >> shift) * (stride * 2) + (at & (k - 1))
            put_in_order(keys, ids, i, i + stride, True)
        stride <<= 1
        distance: u32 = k >> 1
        while distance > 0:
            barrier()
            for pair in range(workitem_id(), live >> 1, lanes()):
                at = pair * 2 - (pair & (distance - 1))
                i = (at >> shift) * stride + (at & (k - 1))
                put_in_order(keys, ids, i, i + distance, (at & k) == 0)
            distance >>= 1
    barrier()


@inline
def keep_best(keys, ids, out_keys: ptr[u64], out_ids: ptr[u32], n: u32, k: u32):
    """The first k of a sorted block go to their place among those of the row's other blocks."""
    groups = (n + (block() - 1)) // block()
    place = (u64(workgroup_id(1)) * u64(groups) + u64(workgroup_id(0))) * u64(k)
    for i in range(workitem_id(), k, lanes()):
        out_keys[place + u64(i)] = keys[i]
        out_ids[place + u64(i)] = ids[i]


@inline
def here(n: u32):
    """How many of a row's n values are in this workgroup's block."""
    left = n - workgroup_id(0) * block()
    count: u32 = block()
    if left < block():
        count = left
    return count


@kernel(workgroup=1024, resident=256)
def sample_top_scores(scores: ptr[f64], out_keys: ptr[u64], out_ids: ptr[u32], n: u32, k: u32):
    """Of each block of scores (f64[rows, n]) the first k; their ids are places in the row."""
    keys = shared(u64, block())
    ids = shared(u32, block())
    first = workgroup_id(0) * block()
    row = scores + u64(workgroup_id(1)) * u64(n)
    count = here(n)
    size = sorted_size(count, k)
    for i in range(workitem_id(), size, lanes()):
        key: u64 = 0
        token: u32 = NO_ID
        if i < count:
            token = first + i
            key = order_key(row[token])
        keys[i] = key
        ids[i] = token
    sort_runs(keys, ids, size, k)
    merge_runs(keys, ids, size, k)
    keep_best(keys, ids, out_keys, out_ids, n, k)


@kernel(workgroup=1024, resident=256)
def sample_top(in_keys: ptr[u64], in_ids: ptr[u32], out_keys: ptr[u64], out_ids: ptr[u32], n: u32, k: u32):
    """Of each block of candidates (u64[rows, n], u32[rows, n]), falling runs of k, the first k."""
    keys = shared(u64, block())
    ids = shared(u32, block())
    row = u64(workgroup_id(1)) * u64(n) + u64(workgroup_id(0)) * block()
    count = here(n)
    size = sorted_size(count, k)
    for i in range(workitem_id(), size, lanes()):
        key: u64 = 0
        token: u32 = NO_ID
        if i < count:
            # Every second run is read from its end, and so rises.
            at = row + u64(select((i & k) == 0, i, i ^ (k - 1)))
            key = in_keys[at]
            token = in_ids[at]
        keys[i] = key
        ids[i] = token
    merge_runs(keys, ids, size, k)
    keep_best(keys, ids, out_keys, out_ids, n, k)
