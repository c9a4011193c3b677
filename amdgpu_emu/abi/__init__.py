"""The kernel driver's structs and numbers, all that are emulated: the runtime's rows and those that it does not use."""
