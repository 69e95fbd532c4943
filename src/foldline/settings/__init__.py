"""Settings: from names and values in files to one typed value and a policy.

gateway_tables  What `[gateway]` says, and the settings of each tenant
kinds           The kinds of values, their checks, and the typed `Settings`
layers          Loads files, environment, a profile and flags, and merges them
limit_rules     The operator's limits on what clients of a gateway may use
parse           Checks a file's content and builds `Settings` from it
schema          The table of all settings
"""

from collections.abc import Mapping
from typing import Any

from foldline.errors import BadInput
from foldline.settings.kinds import Settings
from foldline.settings.parse import (
    SettingFault,
    build_settings,
    list_line_faults,
    list_server_faults,
    list_threshold_faults,
    parse_settings,
)

__all__ = ["SettingFault", "Settings", "build_settings", "parse_settings", "read"]


def read(given: Mapping[str, Any]) -> Settings:
    """Read settings from one file's content; tables may be nested or written with dots."""
    found, faults = parse_settings(given)
    faults += [
        *list_server_faults(found), *list_threshold_faults(found), *list_line_faults(found)
    ]  # fmt: skip
    if faults:
        raise BadInput("; ".join(fault.told for fault in faults))
    return build_settings(found)
