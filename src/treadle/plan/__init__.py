"""Pure decisions over records: no IR, no targets."""
