"""Three doors to the kernel driver, one ring above them: `base` states what a door does."""
