"""The parts of sampling's arithmetic, each by itself."""

from __future__ import annotations

from zinc_rt.kernels.sampling_math import exp, key_score, order_key, uniform
from zinc_rt.lang.kernel import kernel
from zinc_rt.lang.ops import workgroup_id, workitem_id
from zinc_rt.lang.types import f64, ptr, u64


@kernel(workgroup=256)
def parts(x: ptr[f64], powers: ptr[f64], keys: ptr[u64], back: ptr[f64], table: ptr[u64]):
    """Of each x <= 0: its exp; of each x: its key and the number of that."""
    i = workgroup_id(0) * 256 + workitem_id()
    v = x[i]
    powers[i] = exp(v, table)
    keys[i] = order_key(v)
    back[i] = key_score(keys[i])


@kernel(workgroup=256)
def uniforms(seeds: ptr[u64], steps: ptr[u64], u: ptr[f64]):
    """The random number of each seed and step."""
    i = workgroup_id(0) * 256 + workitem_id()
    u[i] = uniform(seeds[i], steps[i])
