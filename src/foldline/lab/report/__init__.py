"""A comparison for people.

page       One HTML page that needs nothing else
plots      Its plots, as SVG
sentences  Its sentences, also for the terminal
"""
