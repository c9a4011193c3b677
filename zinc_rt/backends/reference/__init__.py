"""The NumPy reference: the oracle of every other backend."""
