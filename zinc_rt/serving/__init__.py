"""Serving: one engine for many callers. `core` runs on the engine's side, the rest on the callers'."""
