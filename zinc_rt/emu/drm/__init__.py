"""The emulated amdgpu DRM driver: a render node's ioctls, as the kernel's own checks them."""
