"""Command submission through a render node (DRM)."""
