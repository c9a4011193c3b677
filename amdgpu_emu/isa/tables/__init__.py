"""Opcode numbers, read off an assembler for gfx1201; one module per family of formats."""
