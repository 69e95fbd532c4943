"""Whether a value that stands behind a telling name is a secret, or only the name of one.

Knows how secrets differ from words: letters and digits mixed. Refuses to know any maker's keys.

`password: str`, `token = tokens[0]`, `API_KEY=$API_KEY` and `max_tokens=800` are no secrets, and a
page of code is full of them: who redacts those takes from a summary what it is about.
"""

import re

_LONG = 12  # characters: below that, a value behind "token" is more often a word
_LOOKED_AT = 200  # characters of a value: enough to tell, however long it is
_BEFORE = 24  # characters of a name before its telling part
_LINE = 300  # characters before "-u" in which the program stands

_CHANGES = re.compile(r"(?=[a-z][A-Z]|[A-Za-z][0-9]|[0-9][A-Za-z])")
_DIGIT = re.compile(r"[0-9]")
_LETTER = re.compile(r"[A-Za-z]")
_TELLING = re.compile(r"[0-9!@#^&*?~+]")
_SAYS = re.compile(r"(?i)pass|pwd|token|key|secret")
_OPTION = re.compile(r"(?:^|\s)--?[\w-]*$")
_KEY_OF = re.compile(
    r"(?i)(?:api|access|auth|secret|private|signing|encryption|master|account|service|client)[_-]?$"
)
_STAND_IN = re.compile(
    r"(?i)^[$%{<*/~@#]|^\.|^(?:0x)|\*{3}|\.\.\.|…|x{4}|\$\{|\{\{|%\(|your|example|changeme|change_me"
    r"|placeholder|redacted|dummy|environ|getenv|process\.|env\.|secrets\.|^https?:|^file:"
)
_CODE = re.compile(r"[A-Za-z_]\w*(?:(?:\.|->|::|\?\.)[A-Za-z_]\w*)+[!?]?")
_FILE = re.compile(r"[\w./-]*\.[a-z]{2,4}")
_NAME = re.compile(r"[A-Za-z_]\w*")
_MORE = re.compile(
    r"(?i)^[_-]?(?:s$|count|limit|type|len|size|index|id$|ids$|name|url|uri|path|file|field|expir"
    r"|usage|budget|rate|hash|digest|policy|prompt|input|label|length|at$|ref$|version|format)"
)
_OTHER = re.compile(
    r"(?i)(?:max|min|num|page|next|prev|previous|continuation|sync|cursor|cancel|cancellation|bos"
    r"|eos|pad|unk|sep|cls|mask|stop|end|start|public|sort|foreign|primary|partition|cache|idempotency)"
    r"[_-]?$"
)


def mixed(value: str) -> bool:
    """Letters and digits in no order, as words, paths and names in code never are."""
    head = value[:_LOOKED_AT]
    if len(_DIGIT.findall(head)) < 2:  # noqa: PLR2004 - names end in one: user1, step2
        return False
    return len(_CHANGES.findall(head)) >= max(4, len(head) // 7)


def is_mixed(found: "re.Match[str]") -> bool:
    """Whether what was found is more than a word behind a short prefix."""
    return mixed(found["it"])


def is_secret(found: "re.Match[str]") -> bool:
    """A value behind "token", "secret", "api key": long and mixed."""
    value = found["it"] or found["bare"]
    return len(value) >= _LONG and mixed(value) and _named(found) and not _word(found, value)


def is_password(found: "re.Match[str]") -> bool:
    """A value behind "password": people choose them, so a digit or a sign among letters will do."""
    value = found["it"] or found["bare"]
    head = value[:_LOOKED_AT]
    telling = _TELLING.search(head) is not None and _LETTER.search(head) is not None
    return telling and _named(found) and not _word(found, value)


def is_sent(found: "re.Match[str]") -> bool:
    """What stands behind "Bearer" or "Basic": not a word of a sentence."""
    head = found["it"][:_LOOKED_AT]
    digits = len(_DIGIT.findall(head))
    return (digits >= 3 or mixed(head)) and not _STAND_IN.search(head)  # noqa: PLR2004


def is_user_option(found: "re.Match[str]") -> bool:
    """Behind `-u` of a program that takes a password there; of others it is a user and a group."""
    end = found.start()
    begin = max(end - _LINE, 0)
    line = max(found.string.rfind("\n", begin, end), begin)
    return any(found.string.rfind(name, line, end) >= 0 for name in ("curl", "wget", "http "))


def _named(found: "re.Match[str]") -> bool:
    """Whether the name as a whole is that of a secret, and an option where no sign joins them."""
    start = found.start()
    before = found.string[max(start - _BEFORE, 0) : start]
    if found["flag"] and not _OPTION.search(before):
        return False
    if found[0][:3].lower() == "key" and not _KEY_OF.search(before):
        return False
    return not _MORE.search(found["more"]) and not _OTHER.search(before)


def _word(found: "re.Match[str]", value: str) -> bool:
    """A stand-in, a file, a name in code: not the secret itself."""
    head = value[:_LOOKED_AT]
    if _STAND_IN.search(head) or _FILE.fullmatch(head):
        return True
    if found["quote"]:
        return False
    return _CODE.fullmatch(head) is not None or (
        _NAME.fullmatch(head) is not None and _SAYS.search(head) is not None
    )
