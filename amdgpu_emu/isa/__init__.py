"""gfx12 (RDNA 4) machine code: decoding, and LLVM's text for it. Opcode numbers and operand types are in `tables`."""
