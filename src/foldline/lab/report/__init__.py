"""A comparison for people: its sentences, and one page with plots that needs nothing else."""
