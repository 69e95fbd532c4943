"""How much of what nobody has answered is sent: the largest message that is sent whole, and several that share the room.

    just bench whole --short       a window of 8,000, one in three kinds of text
    just bench whole               windows of 8,000, 32,000 and 128,000

Two tables, in true tokens (o200k) as shares of the window. A session has room for 80 % of its window: a tenth is kept for
the answer, a tenth for errors of the count.

    whole     the largest first message that is sent whole; with the model's tokenizer and without one
    several   n documents that nobody has answered, and a question behind them: what is sent of them, how many are in
              the request, and how many are whole

Exits 1 where the largest whole message is below 60 % of the window (75 % with a tokenizer) but for texts on which tokenizers disagree, where a document is missing,
where documents that fit are cut, where those that do not fit leave more than 15 % of room empty (by the count that
decides: the tokenizer's, else the session's own), or where a request is above the window.

Needs tiktoken and FOLDLINE_SHARED for its ranks. The languages need `just languages`.
"""

import argparse
import logging
import os
import sys
from pathlib import Path
from random import Random

from made.machine_text import KINDS
from overflow import get_counter, list_languages, write_text

import foldline

LANGUAGES = {
    "English": "eng", "German": "deu_1996", "French": "fra", "Russian": "rus", "Chinese": "cmn_hans", "Japanese": "jpn",
    "Korean": "kor", "Arabic": "arb", "Hindi": "hin", "Vietnamese": "vie", "Khmer": "khm", "Greek": "ell_monotonic",
    "Thai": "tha", "Hebrew": "heb", "Ukrainian": "ukr", "Spanish": "spa", "Polish": "pol", "Turkish": "tur",
}  # fmt: skip
MACHINE = (
    "json nested",
    "csv",
    "access log",
    "python traces",
    "yaml",
    "html",
    "sql dump",
    "json log",
    "shell",
)
HARD = (
    "hexdump canonical",
    "base58",
    "digit table",
    "diff",
)  # tokenizers disagree, or the estimate is high
LEAST, LEAST_EXACT, LEAST_FILLED = 0.60, 0.75, 0.85
ROOM = 0.8
SHAPES = ((2, 0.5), (2, 0.4), (2, 0.3), (3, 0.3), (3, 0.2), (4, 0.25), (6, 0.2), (30, 0.1))
REPORT = (
    "the quick report shows that our second deployment failed because a stale lock remained in place while somebody "
    "restarted the primary node and nobody noticed until customers complained about missing invoices which were later "
    "restored from backup without further loss of data"
)


def write_prose(random: Random, size: int) -> str:
    """Write sentences of random words."""
    known, sentences, written = REPORT.split(), list[str](), 0
    while written < size:
        words = " ".join(random.choices(known, k=random.randint(5, 18)))
        sentences.append(words.capitalize() + random.choice(".?!"))
        written += len(sentences[-1]) + 1
    return " ".join(sentences)[:size]


def open_session(window: int, tokenizer: str | None) -> foldline.Session:
    """Open a session of a model whose tokenizer is o200k."""
    return foldline.open(":memory:", model="gpt-6.1-sol", window=window, tokenizer=tokenizer)


def is_whole(text: str, window: int, tokenizer: str | None) -> bool:
    """Whether a first message is sent as it is."""
    with open_session(window, tokenizer) as session:
        session.add(text)
        return session.request()["messages"][-1]["content"] == text


def find_largest(text: str, window: int, tokenizer: str | None) -> float:
    """Find the largest beginning of a text that is sent whole, as a share of the window."""
    low, high = 0, min(len(text), window * 8)
    while high - low > max(window // 100, 16):
        middle = (low + high) // 2
        low, high = (middle, high) if is_whole(text[:middle], window, tokenizer) else (low, middle)
    return get_counter("o200k").encode(text[:low]) / window


def list_kinds(*, short: bool) -> dict[str, str]:
    """Texts by name."""
    kinds = {
        "prose": "prose",
        "code": "code",
        **{name: f"machine {name}" for name in (*MACHINE, *HARD) if name in KINDS},
    }
    known = list_languages()
    kinds |= {name: f"udhr {code} NFC" for name, code in LANGUAGES.items() if code in known}
    names = [*kinds][:: 3 if short else 1]
    return {name: kinds[name] for name in names}


def write_kind(source: str, size: int) -> str:
    """Write a text of a kind."""
    random = Random(source)
    if source == "code":
        files = sorted(Path(foldline.__file__).parent.glob("core/*.py"))
        return "\n".join(path.read_text(encoding="utf-8") for path in files)[:size]
    return write_prose(random, size) if source == "prose" else write_text(source, random, size)


def print_whole(windows: tuple[int, ...], *, short: bool) -> list[str]:
    """Print the largest whole message by kind of text; return what is missed."""
    missed = list[str]()
    titles = [
        f"{window:,}{' exact' if exact else ''}" for window in windows for exact in (False, True)
    ]
    print(f"{'sent whole up to':18}" + "".join(f"{title:>14}" for title in titles))
    for name, source in list_kinds(short=short).items():
        cells = list[str]()
        for window in windows:
            text = write_kind(source, window * 8)
            for tokenizer in (None, "o200k_base"):
                share = find_largest(text, window, tokenizer)
                cells.append(f"{share:>14.0%}")
                least = LEAST_EXACT if tokenizer else LEAST
                if share < least - 0.005 and (tokenizer or name not in HARD):
                    missed.append(
                        f"{name}, window {window:,}, {tokenizer}: whole up to {share:.0%}"
                    )
                if share > 1:
                    missed.append(f"{name}, window {window:,}, {tokenizer}: above the window")
        print(f"{name:18}" + "".join(cells), flush=True)
    return missed


def print_several(windows: tuple[int, ...]) -> list[str]:
    """Print what is sent of several unanswered documents; return what is missed."""
    missed, count = list[str](), get_counter("o200k").encode
    print(
        f"\n{'window':>9}{'documents':>12}{'tokenizer':>12}{'sent':>8}{'of room':>9}{'there':>7}{'whole':>7}"
    )
    for window in windows:
        for number, share in SHAPES:
            random = Random(f"{window} {number} {share}")
            length = int(window * share / (count(write_prose(random, 4_000)) / 4_000))
            texts = [f"Document {n}.\n{write_prose(random, length)}" for n in range(number)]
            texts.append("Compare the documents.")
            fits = sum(map(count, texts)) <= window * (ROOM - 0.02)
            for tokenizer in (None, "o200k_base"):
                with open_session(window, tokenizer) as session:
                    for text in texts:
                        session.add(text)
                    sent = [message["content"] for message in session.request()["messages"]]
                    report = session.report
                true = sum(map(count, sent))
                filled = true / window / ROOM if tokenizer else report.total / (report.room or 1)
                there = sum(any(one.startswith(text[:11]) for one in sent) for text in texts)
                whole = sum(text in sent for text in texts)
                print(
                    f"{window:>9,}{f'{number} x {share:.0%}':>12}{'o200k' if tokenizer else '-':>12}{true / window:>8.0%}"
                    f"{filled:>9.0%}{there:>5}/{len(texts)}{whole:>5}/{len(texts)}",
                    flush=True,
                )
                case = f"{number} documents of {share:.0%}, window {window:,}, {tokenizer}"
                if there < len(texts):
                    missed.append(f"{case}: {len(texts) - there} are missing")
                if true > window:
                    missed.append(f"{case}: above the window")
                known = fits if tokenizer else sum(map(count, texts)) <= LEAST * window
                if known and whole < len(texts):
                    missed.append(f"{case}: they fit and are cut")
                if whole < len(texts) and filled < LEAST_FILLED:
                    missed.append(f"{case}: only {filled:.0%} of room is used")
    return missed


def main() -> int:
    """Print the tables; 1 where something is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--short", action="store_true", help="one small window, a third of the kinds"
    )
    given = parser.parse_args()
    if not os.environ.get("FOLDLINE_SHARED"):
        print("FOLDLINE_SHARED is not set: no ranks here")
        return 1
    logging.disable(logging.CRITICAL)
    get_counter("o200k")
    windows = (8_000,) if given.short else (8_000, 32_000, 128_000)
    missed = print_whole(windows[:2], short=given.short) + print_several(windows)
    for one in missed:
        print(f"missed: {one}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
