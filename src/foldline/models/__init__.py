"""Everything about models, except sessions with them.

catalog    Windows and prices by a model's name
clients    The model port implemented with the official SDKs
port       The port to a model
redact     Removes secrets from text
retries    Calls a model with retries and time limits
servers    Asks a server for the window and prices of its models
summarize  Asks models for the narrative of a fold and verifies it
tokenizers The tokenizers of models that publish theirs
"""
