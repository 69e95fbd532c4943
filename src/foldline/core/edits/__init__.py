"""The edits, cheapest first: clip, mask, fold; and undo, which reverts them.

`structure` knows the kinds of text that a clip shortens by what is in them.
"""
