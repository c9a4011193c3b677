"""Milliseconds to choose the tokens of a step's rows: native code beside the NumPy sampler, by parameters.

    python benchmarks/sampling.py                        # 1, 16 and 64 rows of 151,936 logits
    python benchmarks/sampling.py --rows 16 --threads 2 --logits flat --rounds 9

"new" is what a step pays: writing the rows' parameters, the kernel on all threads, and the tokens. "old" is `Sampler`,
row after row. Both are the best of several rounds, "old" of two, with up to 16 rows measured and more of them
extrapolated. Tokens and log-probabilities are compared; the logits are random: "peaked" is nearest to those of a model,
"flat" (normal, deviation 1) is the worst case of top-p.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.cpu.choice import TargetTuning
from zinc_rt.backends.cpu.cores import default_threads
from zinc_rt.backends.cpu.program import CpuProgram, Runner, plain_step
from zinc_rt.backends.cpu.sampling import CpuSampling
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.lang.library import Library
from zinc_rt.lang.target import host_target
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.request import HostSampled, SamplingRequest
from zinc_rt.sampling.sampler import Sampled, Sampler

N_VOCAB = 151_936
WHOLE = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
"""All tokens may be drawn."""
CASES: dict[str, dict[str, object]] = {
    "defaults": {},
    "greedy, mask": {"temperature": 0.0},
    "greedy, logprobs 5": {"temperature": 0.0, "logprobs": 5},
    "penalties of 2000 tokens, 100 biases": {
        "repeat_last_n": -1,
        "repetition_penalty": 1.1,
        "frequency_penalty": 0.1,
        "logit_bias": {i * 7: 0.5 for i in range(100)},
    },
    "temperature alone": {**WHOLE},
    "top-k 5000, top-p": {**WHOLE, "top_k": 5000, "top_p": 0.95},
    "top-k 50000, logprobs 5": {**WHOLE, "top_k": 50_000, "logprobs": 5},
    "top-p": {**WHOLE, "top_p": 0.95},
    "top-p, min-p, logprobs 5": {**WHOLE, "top_p": 0.9, "min_p": 0.02, "logprobs": 5},
    "top-p, logprobs 20": {**WHOLE, "top_p": 0.95, "temperature": 1.2, "logprobs": 20},
    "top-p, logprobs 5, mask": {**WHOLE, "top_p": 0.95, "logprobs": 5},
}


def made_up(kind: str, rows: int) -> npt.NDArray[np.float32]:
    """f32[rows, N_VOCAB] random logits."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((rows, N_VOCAB)).astype(np.float32)
    if kind == "peaked":
        x *= 2.5
        for row in x:
            row[rng.integers(0, N_VOCAB, 5)] += np.float32([14, 13, 12, 11, 10])
    return x


@dataclass
class Bench:
    """Rows of logits and what chooses from them."""

    logits: npt.NDArray[np.float32]
    threads: int
    rounds: int

    def __post_init__(self) -> None:
        self.likeliest = self.logits.argmax(axis=1).astype(np.int32)
        self.library = Library(host_target(), CompileCache(default_cache_dir()))
        self.runner = Runner(self.library, self.threads)
        kernel = TargetTuning.of(self.library.target).sample()
        self.sampling = CpuSampling(self.threads, kernel, N_VOCAB, self.logits, self.likeliest)
        self.program = CpuProgram.build([], plain_step(), self.library, self.threads)
        self.program.end_with(self.sampling.operation, self.library)

    def requests(self, how: dict[str, object], masked: bool, rows: int) -> list[SamplingRequest]:
        """Fresh ones, the same each time."""
        rng = np.random.default_rng(2)
        mask = rng.integers(0, 2**32, N_VOCAB // 32, dtype=np.uint32) if masked else None
        history = rng.integers(0, N_VOCAB, 2000).tolist()
        return [
            SamplingRequest(Sampler(SamplingParams.with_overrides(None, **how, seed=i), N_VOCAB), history, mask)
            for i in range(rows)
        ]

    def native(self, how: dict[str, object], masked: bool) -> tuple[float, list[Sampled]]:
        """Seconds of the best round, and the tokens of the first."""
        rows = len(self.logits)
        requests, first, best = self.requests(how, masked, rows), None, float("inf")
        for _ in range(self.rounds):
            started = time.perf_counter()
            self.sampling.write(requests)
            self.program.prepare(n_rows=0, n_logits=0, splits=0, attention=0, sampled=rows)
            self.runner.run(self.program)
            tokens = self.sampling.sampled(requests, self.logits, self.likeliest, lambda: None).tokens()
            best = min(best, time.perf_counter() - started)
            first = first or tokens
        self.runner.drain()
        assert first is not None
        return best, first

    def host(self, how: dict[str, object], masked: bool) -> tuple[float, list[Sampled]]:
        """The same by `Sampler`, of up to 16 rows."""
        rows, best, tokens = min(16, len(self.logits)), float("inf"), []
        for _ in range(min(2, self.rounds)):
            requests = self.requests(how, masked, rows)
            started = time.perf_counter()
            tokens = HostSampled(requests, self.logits, self.likeliest).tokens()
            best = min(best, time.perf_counter() - started)
        return best * len(self.logits) / rows, tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--logits", nargs="+", choices=["peaked", "flat"], default=["peaked", "flat"])
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    for kind in args.logits:
        benches = [Bench(made_up(kind, rows), args.threads, args.rounds) for rows in args.rows]
        heads = "".join(f"{rows:>6} rows: new     old" for rows in args.rows)
        print(f"{kind + f', {args.threads} threads, ms':38}{heads}")
        for name, how in CASES.items():
            line = f"{name:38}"
            for bench in benches:
                new, tokens = bench.native(how, "mask" in name)
                old, wanted = bench.host(how, "mask" in name)
                assert tokens[: len(wanted)] == wanted, f"{name}: other tokens"
                line += f"{1e3 * new:16.2f}{1e3 * old:8.1f}"
            print(line, flush=True)
        for bench in benches:
            bench.runner.close()


if __name__ == "__main__":
    main()
