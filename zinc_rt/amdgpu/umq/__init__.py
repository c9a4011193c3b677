"""User-mode queues of a render node."""
