"""The engine's scheduler: requests, their queues, fair shares among tenants, and the loop of steps."""
