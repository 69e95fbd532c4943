"""Settings: names and values as a file has them → one typed value, and a policy.

    build   Checked settings → the typed value, and the policy they change
    files   Settings files: where they are looked for, what stands in them, and on which line
    kinds   What a setting's value may be, and what to write instead of a wrong one
    layers  The settings in force: files, environment, a profile and flags, laid over each other
    names   Names of settings
    parse   A file's content → every setting in it by its name, checked
    schema  Every setting there is
    values  Settings as a program uses them: one frozen value, typed to its leaves

Knows every name that may stand in a settings file, in TOML or YAML alike, and what to write instead
of a wrong one. Refuses to know files: whoever reads one gives its content here.
"""

from collections.abc import Mapping
from typing import Any

from foldline.errors import BadInput
from foldline.settings.build import made
from foldline.settings.parse import SettingFault, checked, crossed
from foldline.settings.values import Settings

__all__ = ["SettingFault", "Settings", "checked", "made", "read"]


def read(given: Mapping[str, Any]) -> Settings:
    """Settings from one file's content; tables may be nested or written with dots."""
    found, faults = checked(given)
    faults += crossed(found)
    if faults:
        raise BadInput("; ".join(fault.told for fault in faults))
    return made(found)
