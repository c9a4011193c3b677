"""Running a step and choosing its token: by the sampler here, or by the GPU that made the logits. The same tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from zinc_rt.engine import Engine, Rows, SampledStep, StepResult
from zinc_rt.sampling.sampler import Sampled, Sampler, count_nan

if TYPE_CHECKING:
    from zinc_rt.backends.amdgpu.sampling import GpuSampling


class Chooser(Protocol):
    """`step` runs rows of which the last one wants a token, `token` says which; the history is the same for both."""

    def step(self, rows: Rows, history: Sequence[int]) -> None:
        """Raises what `Engine.step` raises."""

    def token(self, history: Sequence[int]) -> Sampled:
        """Raises `DegenerateLogits`."""
        ...


class HostChooser:
    """Logits come here. n_vocab of the sampler: the first of a row's logits; the rest are padding of the embedding."""

    def __init__(self, engine: Engine, sampler: Sampler) -> None:
        self._engine, self._sampler = engine, sampler
        self._result: StepResult | None = None

    def step(self, rows: Rows, history: Sequence[int]) -> None:
        self._result = self._engine.step([rows])

    def token(self, history: Sequence[int]) -> Sampled:
        assert self._result is not None, "a step comes first"
        logits, n_vocab = self._result.logits[0], self._sampler.n_vocab
        likeliest = int(self._result.tokens[0]) if n_vocab == len(logits) else None
        return self._sampler.sample(logits[:n_vocab], history, likeliest)


class GpuChooser:
    """Tokens come here, and logits only where the kernels cannot finish (`docs/sampling.md`)."""

    def __init__(self, engine: Engine, sampler: Sampler, sampling: GpuSampling) -> None:
        self._engine, self._sampler, self._sampling = engine, sampler, sampling
        self._result: SampledStep | None = None

    def step(self, rows: Rows, history: Sequence[int]) -> None:
        from zinc_rt.sampling.gpu import fill

        there = self._sampling
        self._engine.settle()
        fill(there.shape, there.rows, there.touched, 0, self._sampler, history)
        self._result = self._engine.step_sampled([rows], there)

    def token(self, history: Sequence[int]) -> Sampled:
        from zinc_rt.sampling.gpu import accept

        assert self._result is not None, "a step comes first"
        step, n_vocab = self._result, self._sampler.n_vocab
        if not self._sampler.step:  # NaN is looked for in the first row alone: each that comes here takes a copy
            self._sampler.n_nan = count_nan(step.logits()[0, :n_vocab])
        token, status = int(step.tokens[0]), int(step.status[0])
        return accept(self._sampler, token, status, lambda: step.logits()[0, :n_vocab], history)


def chooser_for(engine: Engine, sampler: Sampler, n_context: int) -> Chooser:
    """On the GPU where it computes and can choose by these parameters. n_context: tokens that the text can have."""
    if engine.samples:
        from zinc_rt.sampling.gpu import exp_table, shape_of

        shape = shape_of(sampler.params, sampler.n_vocab, n_context)
        if shape is not None:
            return GpuChooser(engine, sampler, engine.open_sampling(sampler.n_vocab, 1, shape, exp_table()))
    return HostChooser(engine, sampler)
