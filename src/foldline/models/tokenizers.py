"""A model's own tokenizer, by which texts are counted exactly where it matters.

It is a function from a text to its number of tokens, or the name of one of tiktoken's, which needs
the extra `tokenizers`. Nothing is downloaded in the middle of a request: ranks must be in
tiktoken's folder, where `python -c 'import tiktoken; tiktoken.get_encoding("o200k_base")'` puts
them once.
"""

import os
import tempfile
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

from foldline.errors import BadInput

Tokenizer: TypeAlias = str | Callable[[str], int]
_RANKS = {  # SHA-256
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
}
_BETWEEN = 0.01  # more for texts that are counted one by one and sent together


def load_tokenizer(tokenizer: Tokenizer) -> Callable[[str], int]:
    """Load a tokenizer, or raise `BadInput` with what is missing."""
    if not isinstance(tokenizer, str):
        if not callable(tokenizer):
            raise BadInput(f"tokenizer={tokenizer!r} is no function; give one, or {_list_names()}")
        return _count_with(tokenizer)
    if tokenizer not in _RANKS:
        raise BadInput(f"tokenizer={tokenizer!r} is not known; give a function, or {_list_names()}")
    return _load_named(tokenizer, _find_folder())


def _list_names() -> str:
    return " or ".join(repr(name) for name in _RANKS)


@lru_cache(maxsize=8)
def _load_named(name: str, folder: Path) -> Callable[[str], int]:
    try:
        import tiktoken  # noqa: PLC0415 - an extra
    except ImportError as fault:
        raise BadInput(
            f"tokenizer={name!r} needs the extra `tokenizers`: "
            f"pip install 'foldline[tokenizers]' ({fault})"
        ) from fault
    files = folder.iterdir() if folder.is_dir() else ()
    if not any(sha256(one.read_bytes()).hexdigest() == _RANKS[name] for one in files):
        raise BadInput(
            f"the ranks of {name} are not in {folder}; "
            f"python -c 'import tiktoken; tiktoken.get_encoding({name!r})' puts them there"
        )
    encoding = tiktoken.get_encoding(name)

    def count(text: str) -> int:
        return len(encoding.encode_ordinary(text))

    return _count_with(count)


@lru_cache(maxsize=64)
def _count_with(tokenizer: Callable[[str], int]) -> Callable[[str], int]:
    def count(text: str) -> int:
        # A lone surrogate is sent as a replacement.
        tokens = tokenizer(text.encode("utf-8", "replace").decode())
        return tokens + int(tokens * _BETWEEN) + bool(tokens)

    return count


def _find_folder() -> Path:
    """Find the folder where tiktoken keeps ranks."""
    named = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    return Path(named) if named else Path(tempfile.gettempdir()) / "data-gym-cache"
