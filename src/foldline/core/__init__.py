"""The pure core: log → view → budget → edits → request. No IO, clock, randomness or async."""
