"""What a replay still had in front when it was needed: exact text, no judgement.

kept         names and lines that the agent wrote again   planted  what is known to be true
recoverable  whether what was cut comes back              decay    what many folds leave
"""
