"""Adapters (LoRA): their files, and products of low rank in a model's graph, other ones for each row of a step."""
