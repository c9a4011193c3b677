"""Sampling, from logits to a token: parameters, the sampler, its arithmetic, stop strings, the GPU's part."""
