"""Tokenizers that nobody knows: byte-level BPE, trained here, each in its own way.

They differ in what they were trained on (code, documentation, some or all of a hundred languages),
in how they split a text before they merge, and in the size of their vocabulary. All texts are
already on the machine: Python's own library, the documentation of installed packages, and the
translations that Django brings. Training one takes some seconds; each is kept as JSON.

Two packages are needed that the project itself does not use:

    uv pip install --target .rig/packages --no-deps tokenizers==0.23.3 django==5.2.19
"""

import os
import re
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / ".rig" / "packages"
KEPT = ROOT / ".rig" / "tokenizers"
VERSION = 2  # of the recipe below: another number trains them anew
LEAST_VOCABULARY = 32_768
VOCABULARIES = (32_768, 40_960, 50_000)
MIXES = {  # megabytes of characters of code, documentation, and translations; how many languages
    "code": (2.4, 0.6, 0.6, 12),
    "documents": (0.5, 2.4, 0.6, 12),
    "European": (0.7, 0.7, 1.8, 25),
    "every language": (0.5, 0.5, 2.6, 200),
    "English": (1.6, 2.0, 0.0, 0),
    "six languages": (1.2, 1.2, 1.8, 6),
}
SPLITS = ("gpt2", "digits", "three digits", "lines")
_EUROPEAN = (
    "ast be bg br bs ca cs cy da de dsb el es et eu fi fr fy ga gl hr hsb hu is it lb lt lv mk nb "
    "nl nn pl pt ro ru sk sl sq sr sv uk"
)
_TRANSLATED = re.compile(r'^msgstr(?:\[\d\])? ((?:"(?:[^"\\]|\\.)*"\s*)+)', re.MULTILINE)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class TrainedTokenizer:
    """A tokenizer with its name and how it came about."""

    name: str
    mix: str
    split: str
    vocabulary: int
    encoder: Any

    def count(self, text: str) -> int:
        """Count the tokens of a text."""
        return len(self.encoder.encode(text, add_special_tokens=False).ids)


def is_available() -> bool:
    """Tell whether the package that trains and runs them is installed."""
    return (PACKAGES / "tokenizers").is_dir()


def load_tokenizer(number: int) -> TrainedTokenizer:
    """Load one tokenizer by its number; train it first if nobody has."""
    if str(PACKAGES) not in sys.path:
        sys.path.append(str(PACKAGES))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from tokenizers import Tokenizer  # noqa: PLC0415 - it is only here where it was asked for

    random = Random(f"tokenizer {number}")
    mix = list(MIXES)[number % len(MIXES)]
    split = SPLITS[(number + number // len(SPLITS)) % len(SPLITS)]
    size = random.choice(VOCABULARIES)
    kept = KEPT / f"{VERSION}-{number}.json"
    if not kept.exists():
        trained = _train(_gather_texts(random, mix), split, size)
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_suffix(f".{os.getpid()}")
        trained.save(str(partial))
        partial.rename(kept)
    encoder = Tokenizer.from_file(str(kept))
    vocabulary = encoder.get_vocab_size()
    assert vocabulary >= LEAST_VOCABULARY, f"tokenizer {number} has only {vocabulary:,} tokens"
    return TrainedTokenizer(f"trained {number:02}", mix, split, vocabulary, encoder)


def _train(texts: Iterator[str], split: str, size: int) -> Any:
    """Train one tokenizer."""
    from tokenizers import Tokenizer, models, trainers  # noqa: PLC0415

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = _build_split(split)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=1,
        max_token_length=24,
        show_progress=False,
        initial_alphabet=_list_alphabet(),
    )
    made.train_from_iterator(texts, trainer)
    return made


def _list_alphabet() -> list[str]:
    from tokenizers import pre_tokenizers  # noqa: PLC0415

    return pre_tokenizers.ByteLevel.alphabet()


def _build_split(split: str) -> Any:
    """Build what splits a text before it is merged."""
    from tokenizers import Regex, pre_tokenizers  # noqa: PLC0415

    by_words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    as_it_is = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    match split:
        case "gpt2":
            return by_words
        case "digits":
            one_by_one = pre_tokenizers.Digits(individual_digits=True)
            return pre_tokenizers.Sequence([one_by_one, by_words])
        case "three digits":
            by_three = pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated")
            return pre_tokenizers.Sequence([by_three, by_words])
        case _:
            pieces = r"\n+|\p{N}|[^\S\n]?\p{L}[\p{L}\p{M}]*|[^\S\n]?[^\s\p{L}\p{N}]+|[^\S\n]+"
            return pre_tokenizers.Sequence(
                [pre_tokenizers.Split(Regex(pieces), "isolated"), as_it_is]
            )


def _gather_texts(random: Random, mix: str) -> Iterator[str]:
    """Draw files until each part of the mix is as large as it should be."""
    code, documents, translations, languages = MIXES[mix]
    yield from _draw_files(random, list(_list_code()), code)
    yield from _draw_files(random, list(_list_documents()), documents)
    known = _list_translations()
    codes = sorted(known)
    if mix == "European":
        codes = [one for one in codes if one.split("_")[0] in _EUROPEAN.split()]
    chosen = random.sample(codes, min(languages, len(codes)))
    for one in chosen:
        yield from _draw_files(random, known[one], translations / len(chosen), translated=True)


def _draw_files(
    random: Random, paths: list[Path], megabytes: float, *, translated: bool = False
) -> Iterator[str]:
    left = int(megabytes * 1e6)
    for path in random.sample(paths, len(paths)):
        if left <= 0:
            return
        text = path.read_text(encoding="utf-8", errors="replace")
        if translated:
            text = _read_translations(text)
        text = text[: min(left, 200_000)]
        left -= len(text)
        yield text


def _read_translations(text: str) -> str:
    """Keep what translators wrote: neither names of files nor the English."""
    lines = ("".join(_QUOTED.findall(found)) for found in _TRANSLATED.findall(text))
    return "\n".join(line.replace("\\n", "\n").replace('\\"', '"') for line in lines)


@cache
def _list_code() -> tuple[Path, ...]:
    library = Path(sysconfig.get_path("stdlib"))
    found = sorted(library.glob("*.py")) + sorted(library.glob("*/*.py"))
    return tuple(path for path in found if "site-packages" not in path.parts)


@cache
def _list_documents() -> tuple[Path, ...]:
    folders = (Path(sysconfig.get_path("purelib")), PACKAGES)
    endings = ("*.dist-info/METADATA", "**/*.md", "**/*.rst", "**/*.txt")
    found = (path for folder in folders for ending in endings for path in folder.glob(ending))
    return tuple(sorted(path for path in set(found) if path.stat().st_size > 2_000))


@cache
def _list_translations() -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in sorted((PACKAGES / "django").glob("**/locale/*/LC_MESSAGES/*.po")):
        found.setdefault(path.parts[-3], []).append(path)
    return found
