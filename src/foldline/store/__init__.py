"""Where logs are kept: one port, `base.Store`, and its backends."""
