"""The graph that a model becomes: opcodes, buffers and nodes, the verifier, bytes, costs and drawings."""

from zinc_rt.ir.graph import Buffer, BufferKind, DType, Graph, GraphBuilder, Node
from zinc_rt.ir.op import Op

__all__ = ["Buffer", "BufferKind", "DType", "Graph", "GraphBuilder", "Node", "Op"]
