"""The edits, cheapest first: clip, mask, fold; and undo, which reverts them."""
