"""Grammars that generated tokens must follow, by llguidance: vocabulary, texts of grammars, matchers."""
