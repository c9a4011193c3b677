"""The export pages of ZINC, whose API this package keeps: `kmd`, `kfd`, `cs`, `umq`, `pm4_packet` and the others.

Nothing in the runtime imports it; it is written on the runtime's driver, `zinc_rt.amdgpu`.
"""
