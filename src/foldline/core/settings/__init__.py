"""Settings: names and values as a file has them → one typed value, and a policy.

    kinds     what a value may be                  known     every setting there is
    names     which setting a name means           reading   a file's content, name by name
    making    settings and their policy            values    what a program uses

Knows every name that may stand in a settings file, in TOML or YAML alike, and what to write instead
of a wrong one. Refuses to know files: whoever reads one gives its content here.
"""

from collections.abc import Mapping
from typing import Any

from foldline.core.settings.making import made
from foldline.core.settings.reading import Fault, checked, crossed
from foldline.core.settings.values import Settings
from foldline.errors import BadInput

__all__ = ["Fault", "Settings", "checked", "made", "read"]


def read(given: Mapping[str, Any]) -> Settings:
    """Settings from one file's content; tables may be nested or written with dots."""
    found, faults = checked(given)
    faults += crossed(found)
    if faults:
        raise BadInput("; ".join(fault.told for fault in faults))
    return made(found)
