"""ZINC_RT: an LLM runtime that reads a GGUF file and gives the same bits on every tier."""

__version__ = "0.1.0"
