"""Probes that only benches use: planted facts, what recall brings back, what many folds lose."""
