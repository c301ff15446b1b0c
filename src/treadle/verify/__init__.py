"""verify-schedule: proves the final program of a kernel by happens-before over all agents (docs/schedule.md).

`check.prove` gives the verdict, `lint.needed_sync_ops` says which synchronisation is needed, `faults.faults` makes faulty variants of
a right program, `fixes.with_suggested_fix` looks for the smallest change that fixes a fault. Shares nothing with insert-sync but the effect
"""
