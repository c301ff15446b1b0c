"""Who does what when in a kernel: a model of its schedule over time, as a picture and as trace events (docs/timeline.md)."""
