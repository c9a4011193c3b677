"""What the kernel's headers say: structs, constants and request numbers of DRM, amdgpu and amdkfd. No behaviour."""
