"""Backends: what runs a graph. `base` states the contract, `select` picks one."""
