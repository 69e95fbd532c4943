"""The first run of `foldline chat`: who answers, with which key, by which model.

    await set_up_model(face)    # asks, and writes the user's foldline.toml

Asked only where a person is there; without a terminal the error says what to set.
"""

import asyncio
import os
from importlib.util import find_spec
from typing import NamedTuple
from urllib.parse import urlsplit

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
    face.bar = lambda _: []  # nothing is being opened while it asks
    _say(face, "No model is set up yet. Who answers?")
    for at, one in enumerate(_CHOICES, 1):
        missing = _find_missing_extra(one)
        label = f"{one.title} (needs: pip install 'foldline[{missing}]')" if missing else one.title
        face.above(truncate_line(f"  {at} ", label))
    while (choice := await _choose(face)) is not None:
        address = choice.address or await _ask_for_address(face)
        if address is None:
            return False
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
        path = _write_settings(f"{choice.prefix}{model}", None if choice.address else address)
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
        if missing := _find_missing_extra(choice):
            _say(face, f"{choice.title} needs: pip install 'foldline[{missing}]'")
            continue
        return choice
    return None


async def _ask_for_address(face: ChatFace) -> str | None:
    """Ask for a server's address until one can be read; None if nobody answered."""
    while (said := await face.ask(f"Its address [{_OWN}] ")) is not None:
        try:
            return _complete_address(said.strip() or _OWN)
        except BadInput:
            shown = said.strip().rpartition("@")[2]  # the part before may be a password
            _say(face, f"{shown!r} is no address; write one as {_OWN}")
    return None


def _complete_address(said: str) -> str:
    """Add what people leave out: `http://`, and the path `/v1` that such servers answer at."""
    address = normalize_address(said if "://" in said else f"http://{said}")
    return address if urlsplit(address).path else f"{address}/v1"


def _find_missing_extra(choice: _ProviderChoice) -> str | None:
    """Find the extra that has to be installed first, if any."""
    module, extra = {
        "anthropic": ("anthropic", "anthropic"),
        "google": ("google.genai", "google"),
    }.get(choice.vendor, ("openai", "openai"))
    return extra if _is_missing(module) else None


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
    shown, only = names, names[0] if len(names) == 1 else ""
    for_none = "; empty: 1" if only else "" if names else "; empty: back"
    _show_models(face, shown)
    while (said := await face.ask(f"Which model? [number or name{for_none}] ")) is not None:
        word = replace_surrogates(said).strip()
        if not word:
            if only or not names:
                return only
            _say(face, "write a number or a part of a name; Ctrl-C leaves")
            continue
        if word.isdecimal() and 0 < int(word) <= len(shown):
            return shown[int(word) - 1]
        near = [name for name in names if word.lower() in name.lower()]
        if word in names or not names:
            return word
        if len(near) == 1:
            return near[0]
        if near:
            shown = near
            _show_models(face, shown)
            continue
        answer = await face.ask(f"{clean_line(word)} is not in the list. Take it? [y/N] ")
        if answer is None:
            return None
        if answer.strip().lower() in ("y", "yes"):
            return word
    return None


def _show_models(face: ChatFace, names: list[str]) -> None:
    for at, name in enumerate(names[:_SHOWN], 1):
        face.above(truncate_line(f"  {at:2} ", name))
    if len(names) > _SHOWN:
        _say(face, f"and {len(names) - _SHOWN:,} more: write a part of the name")


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
