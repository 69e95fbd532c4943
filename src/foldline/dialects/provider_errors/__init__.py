"""Turns a provider's error into a `Fault` with a known kind.

body, status, headers  →  unwrap: the provider's words and codes  →  classify: tables  →  Fault
"""

from foldline.dialects.provider_errors.classify import Fault, Kind, classify_error, of_exception

__all__ = ["Fault", "Kind", "classify_error", "of_exception"]
