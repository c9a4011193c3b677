"""The CPU's lowerings of operations, by family. Every module here registers its functions with `CPU`."""
