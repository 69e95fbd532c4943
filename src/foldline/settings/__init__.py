"""Settings: from names and values in files to one typed value and a policy.

fields       The settings by name, as the tree's fields say
kinds        The kinds of values, with their checks
layers       Loads files, environment, a profile and flags, and merges them
limit_rules  The operator's limits on what clients of a gateway may use
parse        Checks a file's content and builds `Settings` from it
tree         All settings, as one typed tree: add a setting there
"""

from collections.abc import Mapping
from typing import Any

from foldline.errors import BadInput
from foldline.settings.parse import SettingFault, build_settings, list_faults, parse_settings
from foldline.settings.tree import Settings

__all__ = ["SettingFault", "Settings", "build_settings", "parse_settings", "read"]


def read(content: Mapping[str, Any]) -> Settings:
    """Read settings from one file's content; tables may be nested or written with dots."""
    found, faults = parse_settings(content)
    faults += list_faults(found)
    if faults:
        raise BadInput("; ".join(fault.message for fault in faults))
    return build_settings(found)
