"""`backends.gpu` on AMD GPUs: the device under it, resident programs, the emulated card."""
