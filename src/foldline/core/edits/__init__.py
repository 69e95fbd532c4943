"""The edits, cheapest first: clip, fold; and undo, which takes them back."""
