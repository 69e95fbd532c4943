"""Provider JSON ↔ events and requests, pure: one module a dialect, none knows another."""
