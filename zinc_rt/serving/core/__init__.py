"""The engine's side of serving: requests, their queue, and the loop of steps that computes them together."""
