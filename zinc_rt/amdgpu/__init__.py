"""The AMD driver: a queue (`queue`) over three interfaces to the kernel (`interface` states what one does)."""
