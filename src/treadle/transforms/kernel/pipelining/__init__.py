"""Software pipelining of loops: the request on a loop, and emitting the steps of a schedule."""
