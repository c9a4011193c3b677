"""NVIDIA GPUs through their driver's library, libcuda.so.1: devices, memory, kernels from PTX, graphs."""
