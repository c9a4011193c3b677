"""Predicts the speed of a model on a GPU that this machine does not have: the emulated card runs the model's real
steps, without its weights.
"""
