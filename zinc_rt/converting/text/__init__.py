"""The tokenizer of a folder, as keys."""
