"""What calls cost: a simulated prompt cache, and a session's real bill with its causes.

cache   What a provider bills for each call, by the rules of its cache
causes  Why a call found no cache, and what to do about it
costs   A session's bill and its cold calls
"""
