"""Warp pipelines: stages of a loop that groups of warps run some stages apart (docs/schedule.md, "Warp pipelines")."""
