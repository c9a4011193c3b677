"""A shader core that runs gfx12 machine code: `ShaderCore` in `core`.

Waves that are at the same instruction run as one NumPy array, lanes and waves together.
"""
