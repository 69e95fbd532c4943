"""Keys that a first run has saved: in the system's keyring, or in a file for its owner only.

    save_key("https://api.openai.com/v1", "OPENAI_API_KEY", key)   →  where it is kept now
    find_saved_key("https://api.openai.com/v1")                    →  the key, or None

A key is sent to the address it was saved for, and to no other. A variable in the environment wins.
"""

import json
import os
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from foldline.models.clients import is_same_address, normalize_address
from foldline.settings.layers import user_folder

_SERVICE = "foldline"
_FILE, _PRIVATE_FILE, _PRIVATE_FOLDER = "keys.json", 0o600, 0o700


def save_key(address: str, variable: str, key: str) -> str:
    """Save a key; return where it is kept."""
    address = normalize_address(address)
    entry: dict[str, str] = {"variable": variable}
    where = _save_in_keyring(address, key)
    if where is None:
        entry["key"], where = key, str(_path())
    saved = {**_read_file(), address: entry}
    path = _path()
    path.parent.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
    beside = path.with_name(f".{_FILE}.{os.urandom(4).hex()}")
    with os.fdopen(
        os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_FILE), "w"
    ) as out:
        json.dump(saved, out, indent=2)
    beside.replace(path)
    return where


def find_saved_key(address: str) -> str | None:
    """Find the key that was saved for an address; None if the environment has one."""
    for saved, entry in _read_file().items():
        if not is_same_address(saved, address) or os.environ.get(entry.get("variable", "")):
            continue
        if "key" in entry:
            return entry["key"]
        with suppress(Exception):  # a locked or missing keyring: as if nothing was saved
            return _keyring().get_password(_SERVICE, saved)
    return None


def explain_key(address: str, variable: str) -> str:
    """Say where to correct the key that is sent to an address."""
    if os.environ.get(variable):
        return f"correct {variable} in the environment"
    for saved, entry in _read_file().items():
        if is_same_address(saved, address):
            if "key" in entry:
                return f"correct the key in {_path()}, or set {variable}"
            return f"`keyring set {_SERVICE} {saved}` corrects the key, or set {variable}"
    return f"set {variable} to a key"


def _save_in_keyring(address: str, key: str) -> str | None:
    if find_spec("keyring") is None:
        return None
    try:
        ring = _keyring()
        ring.set_password(_SERVICE, address, key)
        if ring.get_password(_SERVICE, address) != key:
            return None
    except Exception:  # noqa: BLE001 - each system's keyring fails in its own way
        return None
    return "the system's keyring"


def _keyring() -> Any:
    return import_module("keyring")


def _path() -> Path:
    return user_folder(os.environ) / _FILE


def _read_file() -> dict[str, dict[str, str]]:
    try:
        return json.loads(_path().read_text())
    except (OSError, ValueError):
        return {}
