"""A provider's error → its meaning.

    body, status, headers  →  unwrap: the provider's own words, its codes  →  table  →  Fault

`patterns` holds what providers say, as rows; `unwrap` takes an error out of what it was wrapped in;
`classify` asks the rows in order. Refuses to know what is done about a fault.
"""

from foldline.dialects.provider_errors.classify import Fault, Kind, classify, of_exception

__all__ = ["Fault", "Kind", "classify", "of_exception"]
