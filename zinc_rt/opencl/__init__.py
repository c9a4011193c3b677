"""The OpenCL driver: devices, memory with addresses, launch lists. It implements `backends.gpu.device.GpuDevice`."""
