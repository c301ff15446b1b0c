"""Passes that rewrite the IR, one folder a level."""
