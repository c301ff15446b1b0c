"""The only door to xDSL: `ir.core` (structures), `ir.dialects` (upstream dialects), `ir.context`, `ir.rewriting`, `ir.text`."""
