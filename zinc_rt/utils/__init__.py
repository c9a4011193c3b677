"""Helpers that know nothing of models: checks of arguments, files that are whole or not there, background work."""
