"""An emulated `amdgpu` kernel driver and GPU, for programs that talk to the driver on a machine without a card."""
