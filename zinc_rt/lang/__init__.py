"""The kernel language: typed Python compiled to machine code for a named target."""
