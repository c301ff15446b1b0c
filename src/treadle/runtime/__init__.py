"""Running programs: devices, arrays in and out, device memory, and the disk cache."""
