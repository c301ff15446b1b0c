"""PyTorch in front of the compiler: graphs of its operators become programs."""
