"""Software pipelining of loops: reading a body into records, and emitting the steps of a schedule."""
