"""Coding sessions that are made up from a seed, and whose truth is known.

generated   the session                      truth    what is true of it, call by call
repository  the files it works on            sayings  what is said in it
coder       the agent in it: it looks        editor   and it changes things
"""
