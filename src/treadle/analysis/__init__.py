"""Analyses: they read the IR and never write it."""
