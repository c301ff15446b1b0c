"""The `treadle` command: one file a verb, registered in `main`."""
