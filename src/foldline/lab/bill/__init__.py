"""What calls cost: a provider's prompt cache simulated, and a session's real bill with its causes.

cache      what a provider bills for each call   providers  the rules of each one's cache
causes     why a call found no cache             volatile   bytes of the front that changed
paid       each call of a record as it was paid  costs      a session's bill and its cold calls
advice     what to do about them
"""
