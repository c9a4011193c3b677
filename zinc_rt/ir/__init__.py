"""The graph that a model becomes: opcodes, buffers and nodes, the operations, the verifier, costs and drawings."""
