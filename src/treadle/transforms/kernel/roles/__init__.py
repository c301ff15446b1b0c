"""The parts of form-roles: taking a kernel apart, the ring of buffers, one file for each role, the kernel of roles."""
