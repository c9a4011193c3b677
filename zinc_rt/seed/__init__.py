"""The seed API: the export pages `kmd`, `kfd`, `cs`, `umq`, `pm4_packet`, `ring`, `cpu_ring`, `kernels`, `fast_pool`.

`docs/seed.md` says what they are. Nothing in the runtime imports this package; it is written on the runtime's own
driver (`zinc_rt.amdgpu`) and backends, and `zinc check` shares its probes with it.
"""
