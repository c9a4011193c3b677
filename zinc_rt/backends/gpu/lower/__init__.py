"""The GPU's lowerings of operations, by family. Every module here registers its functions with `GPU`."""
