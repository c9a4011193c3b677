"""Queues of `/dev/kfd`."""
