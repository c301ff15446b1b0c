"""Benchmarks: a suite of named workloads, peers, the measuring protocol and its records (benchmarks/README.md)."""
