"""The first run of `foldline chat`: who answers, with which key, by which model.

    await set_up_model(face)    # asks, and writes the user's foldline.toml

Asked only where a person is there; without a terminal the error says what to set.
"""

import asyncio
import os
from importlib.util import find_spec
from typing import NamedTuple

import msgspec

from foldline.apps.chat.chat_parts import ChatFace
from foldline.apps.cli.output import apply_style, truncate_line, wrap_text
from foldline.apps.cli.saved_keys import find_saved_key, save_key
from foldline.core.parts import replace_surrogates
from foldline.draw.wording import clean_line
from foldline.errors import BadInput
from foldline.models.clients import normalize_address
from foldline.models.servers import fetch_model_names
from foldline.settings.layers import user_folder

_SHOWN = 20
_OWN = "http://127.0.0.1:8080/v1"


class _ProviderChoice(NamedTuple):
    """Who may answer."""

    title: str
    address: str
    variable: str
    vendor: str
    prefix: str = ""
    """What stands before its models' names."""


_CHOICES = (
    _ProviderChoice("OpenAI", "https://api.openai.com/v1", "OPENAI_API_KEY", "openai"),
    _ProviderChoice("Anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY", "anthropic"),
    _ProviderChoice(
        "Google", "https://generativelanguage.googleapis.com", "GEMINI_API_KEY", "google"
    ),
    _ProviderChoice(
        "OpenRouter",
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        "openai",
        "openrouter/",
    ),
    _ProviderChoice(
        "a server of your own (llama.cpp, Ollama, vLLM, …)", "", "OPENAI_API_KEY", "openai"
    ),
)


async def set_up_model(face: ChatFace) -> bool:
    """Ask who answers, and write it into the user's settings; False if nobody answered."""
    _say(face, "No model is set up yet. Who answers?")
    for at, one in enumerate(_CHOICES, 1):
        face.above(truncate_line(f"  {at} ", one.title))
    while (choice := await _choose(face)) is not None:
        address, own = choice.address, not choice.address
        if own:
            said = await face.ask(f"Its address [{_OWN}] ")
            if said is None:
                return False
            address = said.strip() or _OWN
            try:
                address = normalize_address(address)
            except BadInput as fault:
                _say(face, str(fault))
                continue
        key = await _ask_for_key(face, choice, address)
        if key is None:
            return False
        given = key or os.environ.get(choice.variable) or find_saved_key(address) or ""
        _say(face, f"asking {address} for its models …", dim=True)
        names = await asyncio.to_thread(fetch_model_names, address, key=given, vendor=choice.vendor)
        if not names:
            _say(face, f"{address} lists no models: is the address right, and the key?")
        model = await _choose_model(face, names)
        if model is None:
            return False
        if not model:
            continue  # begin again: another address, another key
        if key:
            _say(face, f"the key is kept in {save_key(address, choice.variable, key)}", dim=True)
        path = _write_settings(f"{choice.prefix}{model}", address if own else None)
        _say(face, f"kept in {path}; --model NAME or /model takes another", dim=True)
        return True
    return False


async def _choose(face: ChatFace) -> _ProviderChoice | None:
    while (said := await face.ask(f"Which? [1-{len(_CHOICES)}] ")) is not None:
        word = said.strip()
        if not word.isdecimal() or not 0 < int(word) <= len(_CHOICES):
            _say(face, f"write a number from 1 to {len(_CHOICES)}; Ctrl-C leaves")
            continue
        choice = _CHOICES[int(word) - 1]
        module, extra = {
            "anthropic": ("anthropic", "anthropic"),
            "google": ("google.genai", "google"),
        }.get(choice.vendor, ("openai", "openai"))
        if _is_missing(module):
            _say(face, f"{choice.title} needs the extra: pip install 'foldline[{extra}]'")
            continue
        return choice
    return None


def _is_missing(module: str) -> bool:
    try:
        return find_spec(module) is None
    except ModuleNotFoundError:
        return True


async def _ask_for_key(face: ChatFace, choice: _ProviderChoice, address: str) -> str | None:
    """Ask for a key; "" if none is needed, None if nobody answered."""
    if choice.address and os.environ.get(choice.variable):
        _say(face, f"its key is in {choice.variable}", dim=True)
        return ""
    if find_saved_key(address):
        _say(face, "its key is saved already", dim=True)
        return ""
    own = "" if choice.address else ", if it needs one"
    said = await face.ask(f"Its key{own} (not shown): ", secret=True)
    return None if said is None else replace_surrogates(said).strip()


async def _choose_model(face: ChatFace, names: list[str]) -> str | None:
    """Choose a model by its number or a part of its name; "" to begin again."""
    shown = names
    while True:
        for at, name in enumerate(shown[:_SHOWN], 1):
            face.above(truncate_line(f"  {at:2} ", name))
        if len(shown) > _SHOWN:
            _say(face, f"and {len(shown) - _SHOWN:,} more: write a part of the name")
        asked = "Which model? [number or name] " if names else "Which model? [name; empty: back] "
        said = await face.ask(asked)
        if said is None:
            return None
        word = replace_surrogates(said).strip()
        if not word:
            if not names:
                return ""
            continue
        if word.isdecimal() and 0 < int(word) <= len(shown):
            return shown[int(word) - 1]
        near = [name for name in names if word.lower() in name.lower()]
        if word in names or not near:
            return word
        if len(near) == 1:
            return near[0]
        shown = near


def _write_settings(model: str, address: str | None) -> str:
    """Write the model into the user's settings; what is there stays."""
    path = user_folder(os.environ) / "foldline.toml"
    before = path.read_text() if path.exists() else ""
    lines = ["[model]", f"name = {_quote(model)}"]
    lines += [f"base_url = {_quote(address)}"] if address else []
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    apart = "\n" if before else ""
    text = f"{before}{apart if before.endswith(chr(10)) or not before else chr(10) * 2}"
    path.write_text(text + "\n".join(lines) + "\n")
    return str(path)


def _quote(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _say(face: ChatFace, text: str, *, dim: bool = False) -> None:
    lines = wrap_text(clean_line(text))
    face.above("\n".join(apply_style(line, "dim") if dim else line for line in lines))
