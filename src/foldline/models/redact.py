"""Removes secrets from text before it goes to a summariser or into a log file.

    redact_text('push with ghp_…')  →  'push with [redacted: github token]', 1 github token

The session log itself keeps every byte; what is missing from a summary is one recall away.

Linear on any text: a pattern is tried only where one of its words occurs. A pattern that needs
nothing after its body either fails within its minimum length or consumes all that it read; where
something must follow, the body is possessive (`++`), and starts only at an edge or is bounded.

Brackets belong to no body and make no edge: `[redacted: …]` neither matches nor lets a neighbour
match that did not match before, so redacting twice is redacting once.

`password: str`, `token = tokens[0]`, `API_KEY=$API_KEY` and `max_tokens=800` are not secrets, and a
page of code is full of them: redacting those would take from a summary what it is about.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import msgspec

from foldline.core.log import Logged, ModelSaid, ToolReturned, UserSaid
from foldline.core.parts import Call, Part, Text

PARTS = ("it", "bare")
Judge: TypeAlias = Callable[["re.Match[str]"], bool]


class CredentialPattern(NamedTuple):
    """One kind of credential; the secret is a group of `PARTS`, else the whole match."""

    kind: str
    words: tuple[str, ...]
    """Every match begins with one of them, or `back` characters before one."""
    pattern: str
    judge: Judge | None = None
    """Decides where the pattern alone cannot tell a secret from a name."""
    back: int = 0
    small: bool = False
    """Whether the words match in any case."""


@cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern when first needed: most texts hold no word of most rows."""
    return re.compile(pattern)


# Not inside a longer word; "\n" in quoted text ends one. A bracket is not an edge, see above.
_EDGE = r"(?:(?<![A-Za-z0-9_+\]-])|(?<=\\[nrt]))"
_END = r"(?![A-Za-z0-9\[])"
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_IS = r"""(?:\\?["'`]\]?)?\s{0,4}(?::=|=>|==?|:)\s{0,4}\\?["'`]?"""  # from a name to its value

# Between the lines of a PEM key: line ends, real or escaped, quotes, and the marks of diffs,
# quotations and numbered lines. Groups are atomic, never possessive: see `permission_rules`.
_GAP = r"""(?>(?:[\s"'+|>,:→]|\\{1,4}[nrt]|\d{1,6}(?=[\s|:→])){0,40})"""
_HEADERS = rf"(?>(?:{_GAP}[A-Za-z-]{{4,12}}: [^\n\\]{{1,80}}+){{0,4}})"
_FULL = rf"(?:{_GAP}[A-Za-z0-9+/=]{{16,}}+)"
_PEM = (
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    rf"{_HEADERS}(?:(?>{_FULL}*)(?>(?:{_GAP}[A-Za-z0-9+/=]{{1,15}}+){{0,2}}){_GAP}"
    rf"-----END [A-Z0-9 ]{{0,40}}PRIVATE KEY(?: BLOCK)?-----|(?>{_FULL}+))"
)
# The first part of a bot's token is its number in base64, so few letters are possible there.
_DIGITS = ("MT", "Mj", "Mz", "ND", "NT", "Nj", "Nz", "OD", "OT")  # 1… to 9…
_DIGITS64 = r"(?:[MNO][DTjz][AEIMQUYcgk][w-z0-5]){5,6}\w{0,3}"

# Endings of names whose values are secrets: chosen by people, or given by machines.
_CHOSEN = r"passphrase|passw(?:or)?d|(?<=[_-])pass|pwd"
_GIVEN = r"key|secret|token|credential"
_MORE = r"(?P<more>[_-]\w{0,20}+|\d{1,3}|[A-Z]\w{0,20}+|)"
_TO = r"""(?:\\?["'`]\]?)?(?P<is>\s{0,8}(?::=|=>|={1,3}|:)\s{0,8})"""
_VALUE = (
    r"""(?:(?P<quote>\\?["'`])(?P<it>[^\s"'`\\\[\]<>{}]{6,}+)(?=["'`\\\s]|$)"""
    r"""|(?P<bare>[^\s"'`,;:()\[\]{}<>\\=&|]{6,}+={0,2}+)(?![\[(]))"""
)
_BEFORE = 24  # characters of a name before its telling part

_CHANGES = re.compile(r"(?=[a-z][A-Z]|[A-Za-z][0-9]|[0-9][A-Za-z])")
_CODE = re.compile(r"[A-Za-z_]\w*(?:(?:\.|->|::|\?\.)[A-Za-z_]\w*)+[!?]?")
_DIGIT = re.compile(r"[0-9]")
_FILE = re.compile(r"[\w./-]*\.[a-z]{2,4}")
_KEY_OF = re.compile(
    r"(?i)(?:api|access|auth|secret|private|signing|encryption|master|account|service|client)[_-]?$"
)
_LETTER = re.compile(r"[A-Za-z]")
_LINE = 300  # characters before "-u" in which the program is looked for
_LONG = 12  # characters: a shorter value after "token" is more often a word
_LOOKED_AT = 200  # characters of a value: enough to tell, however long it is
_NAME = re.compile(r"[A-Za-z_]\w*")
_NO_SECRET_ENDING = re.compile(
    r"(?i)^[_-]?(?:s$|count|limit|type|len|size|index|id$|ids$|name|url|uri|path|file|field|expir"
    r"|usage|budget|rate|hash|digest|policy|prompt|input|label|length|at$|ref$|version|format)"
)
_OPTION = re.compile(r"(?:^|\s)--?[\w-]*$")
_OTHER = re.compile(
    r"(?i)(?:max|min|num|page|next|prev|previous|continuation|sync|cursor|cancel|cancellation|bos"
    r"|eos|pad|unk|sep|cls|mask|stop|end|start|public|sort|foreign|primary|partition|cache|idempotency)"
    r"[_-]?$"
)
_SAYS = re.compile(r"(?i)pass|pwd|token|key|secret")
_STAND_IN = re.compile(
    r"(?i)^[$%{<*/~@#]|^\.|^(?:0x)|\*{3}|\.\.\.|…|x{4}|\$\{|\{\{|%\(|your|example|changeme|change_me"
    r"|placeholder|redacted|dummy|environ|getenv|process\.|env\.|secrets\.|^https?:|^file:"
)
_TELLING = re.compile(r"[0-9!@#^&*?~+]")


def _has_secret_name(found: "re.Match[str]") -> bool:
    """Whether the whole name means a secret; without `=` or `:` it must be an option."""
    start = found.start()
    before = found.string[max(start - _BEFORE, 0) : start]
    if found["flag"] and not _OPTION.search(before):
        return False
    if found[0][:3].lower() == "key" and not _KEY_OF.search(before):
        return False
    return not _NO_SECRET_ENDING.search(found["more"]) and not _OTHER.search(before)


def _is_placeholder(found: "re.Match[str]", value: str) -> bool:
    """Whether a value is a stand-in, a file or a name in code, not the secret itself."""
    head = value[:_LOOKED_AT]
    if _STAND_IN.search(head) or _FILE.fullmatch(head):
        return True
    if found["quote"]:
        return False
    return _CODE.fullmatch(head) is not None or (
        _NAME.fullmatch(head) is not None and _SAYS.search(head) is not None
    )


def has_mixed_characters(value: str) -> bool:
    """Whether letters and digits mix as they never do in words, paths and names in code."""
    head = value[:_LOOKED_AT]
    if len(_DIGIT.findall(head)) < 2:  # noqa: PLR2004 - names end in one: user1, step2
        return False
    return len(_CHANGES.findall(head)) >= max(4, len(head) // 7)


def is_mixed(found: "re.Match[str]") -> bool:
    """Whether the match is more than a word after a short prefix."""
    return has_mixed_characters(found["it"])


def is_password(found: "re.Match[str]") -> bool:
    """Whether a value after "password" is one: a digit or sign among letters is enough."""
    value = found["it"] or found["bare"]
    head = value[:_LOOKED_AT]
    telling = _TELLING.search(head) is not None and _LETTER.search(head) is not None
    return telling and _has_secret_name(found) and not _is_placeholder(found, value)


def is_secret(found: "re.Match[str]") -> bool:
    """Whether a value after "token", "secret" or "api key" is one: long and mixed."""
    value = found["it"] or found["bare"]
    return (
        len(value) >= _LONG
        and has_mixed_characters(value)
        and _has_secret_name(found)
        and not _is_placeholder(found, value)
    )


def is_sent(found: "re.Match[str]") -> bool:
    """Whether what follows "Bearer" or "Basic" is a credential, not a word of a sentence."""
    head = found["it"][:_LOOKED_AT]
    digits = len(_DIGIT.findall(head))
    return (digits >= 3 or has_mixed_characters(head)) and not _STAND_IN.search(head)  # noqa: PLR2004


def is_user_option(found: "re.Match[str]") -> bool:
    """Whether `-u` belongs to a program that takes a password there; others take user:group."""
    end = found.start()
    begin = max(end - _LINE, 0)
    line = max(found.string.rfind("\n", begin, end), begin)
    return any(found.string.rfind(name, line, end) >= 0 for name in ("curl", "wget", "http "))


SHAPES: tuple[CredentialPattern, ...] = (
    # First: keys that span several lines or contain other keys.
    CredentialPattern("private key", ("-----BEGIN ",), _PEM),
    CredentialPattern("age key", ("AGE-SECRET-KEY-1",), r"AGE-SECRET-KEY-1[A-Z0-9]{50,}"),
    CredentialPattern("1password token", ("ops_eyJ",), r"ops_eyJ[A-Za-z0-9+/=_-]{100,}"),
    CredentialPattern("sentry token", ("sntrys_", "sntryu_"), r"sntry[su]_[A-Za-z0-9+/=_-]{40,}"),
    CredentialPattern(
        "json web token",
        ("eyJ",),
        r"(?:(?<![A-Za-z0-9_\]-])|(?<=\\[nrt]))eyJ[\w-]{8,}+\.eyJ[\w-]{8,}+\.[\w-]{8,}+",
    ),
    # Clouds
    CredentialPattern(
        "aws access key", ("AKIA", "ASIA", "ABIA", "ACCA"), r"A(?:KI|SI|BI|CC)A[A-Z0-9]{16}"
    ),
    CredentialPattern(
        "aws secret key",
        ("secret",),
        rf"(?i:secret[_-]?(?:access[_-]?)?key){_IS}(?P<it>[A-Za-z0-9/+]{{40}})(?![A-Za-z0-9/+=\[])",
        is_mixed,
        small=True,
    ),
    CredentialPattern(
        "aws session token",
        ("IQoJb3JpZ2lu", "FwoGZXIvYXdz"),
        r"(?:IQoJb3JpZ2lu|FwoGZXIvYXdz)[A-Za-z0-9+/=]{100,}",
    ),
    CredentialPattern("aws bedrock key", ("ABSK",), rf"{_EDGE}ABSK[A-Za-z0-9+/]{{100,}}={{0,2}}"),
    CredentialPattern("google api key", ("AIza",), rf"{_EDGE}AIza[\w-]{{35}}"),
    CredentialPattern("google access token", ("ya29.",), r"ya29\.[\w.-]{20,}"),
    CredentialPattern("google client secret", ("GOCSPX-",), r"GOCSPX-[\w-]{20,}"),
    CredentialPattern("google refresh token", ("1//0",), r"(?<![\w/.:\]])1//0[\w-]{40,}"),
    CredentialPattern(
        "azure account key",
        ("AccountKey=", "SharedAccessKey="),
        r"(?:AccountKey|SharedAccessKey)=(?P<it>[A-Za-z0-9+/]{40,}={0,2})",
    ),
    CredentialPattern(
        "azure signature", ("sig=",), r"(?:(?<=[?&;])|(?<=u0026))sig=(?P<it>[A-Za-z0-9%+/=_-]{40,})"
    ),
    CredentialPattern(
        "azure client secret", ("7Q~", "8Q~"), rf"{_EDGE}[\w.~-]{{3}}[78]Q~[\w.~-]{{31,}}", back=3
    ),
    CredentialPattern(
        "azure devops token", ("AZDO",), rf"{_EDGE}[A-Za-z0-9]{{76}}AZDO[A-Za-z0-9]{{4}}", back=76
    ),
    CredentialPattern("alibaba key", ("LTAI",), rf"{_EDGE}LTAI[A-Za-z0-9]{{20}}{_END}"),
    CredentialPattern(
        "digitalocean token", ("dop_v1_", "doo_v1_", "dor_v1_"), r"do[opr]_v1_[0-9a-f]{64}"
    ),
    CredentialPattern("heroku key", ("HRKU-",), r"HRKU-[\w-]{30,}"),
    CredentialPattern(
        "heroku key by name",
        ("heroku", "Heroku", "HEROKU"),
        rf"(?:heroku|Heroku|HEROKU)[\w .-]{{0,30}}+{_IS}(?P<it>{_UUID})",
    ),
    CredentialPattern(
        "fly token", ("fm2_", "fo1_"), r"(?:fm2_[A-Za-z0-9+/=,_-]{60,}|fo1_[\w-]{40,})"
    ),
    CredentialPattern(
        "cloudflare key", ("v1.0-",), rf"{_EDGE}v1\.0-[0-9a-f]{{24}}-[0-9a-f]{{100,}}"
    ),
    CredentialPattern(
        "supabase key", ("sbp_", "sb_secret_"), r"sb(?:p_[0-9a-f]{40}|_secret_[\w-]{20,})"
    ),
    CredentialPattern("planetscale token", ("pscale_",), r"pscale_(?:tkn|pw|oauth)_[\w.=-]{32,}"),
    CredentialPattern("databricks token", ("dapi",), r"dapi[0-9a-f]{32}(?:-\d)?"),
    # Code, packages, builds
    CredentialPattern(
        "github token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
        r"gh[pousr]_[A-Za-z0-9]{36,}",
    ),
    CredentialPattern("github fine-grained token", ("github_pat_",), r"github_pat_\w{36,}"),
    CredentialPattern(
        "gitlab token",
        ("glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glft-", "glsoat-", "glagent-", "glimt-"),
        r"gl(?:pat|dt|rt|ptt|cbt|ft|soat|agent|imt)-[\w-]{20,}(?:\.[0-9a-z]{2}\.[0-9a-z]{9})?",
    ),
    CredentialPattern("npm token", ("npm_",), r"npm_[A-Za-z0-9]{36}"),
    CredentialPattern("pypi token", ("pypi-Ag",), r"pypi-Ag[\w-]{50,}"),
    CredentialPattern("rubygems key", ("rubygems_",), r"rubygems_[0-9a-f]{48}"),
    CredentialPattern("nuget key", ("oy2",), rf"{_EDGE}oy2[a-z0-9]{{43}}{_END}"),
    CredentialPattern("artifactory key", ("AKCp",), rf"{_EDGE}AKCp[A-Za-z0-9]{{60,}}"),
    CredentialPattern("docker token", ("dckr_",), r"dckr_[po]at_[\w-]{27,}"),
    CredentialPattern(
        "docker login", ('"auth',), r'"auth\\?"\s{0,4}:\s{0,4}\\?"(?P<it>[A-Za-z0-9+/]{12,}={0,2})'
    ),
    CredentialPattern(
        "terraform token", (".atlasv1.",), r"(?<=[A-Za-z0-9]{14})\.atlasv1\.(?P<it>[\w-]{60,})"
    ),
    CredentialPattern("pulumi token", ("pul-",), rf"{_EDGE}pul-[0-9a-f]{{40}}"),
    CredentialPattern("vault token", ("hvs.", "hvb.", "hvr."), r"hv[sbr]\.[\w-]{24,}"),
    CredentialPattern(
        "vault token, old",
        ("s.",),
        r"(?<![A-Za-z0-9_.\])-])s\.(?P<it>[A-Za-z0-9]{24})(?![\w.(\[-])",
        is_mixed,
    ),
    CredentialPattern(
        "doppler token", ("dp.",), rf"{_EDGE}dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{{40,}}"
    ),
    CredentialPattern("postman key", ("PMAK-",), r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    CredentialPattern("atlassian token", ("ATATT3", "ATCTT3"), r"AT[AC]TT3[\w=-]{50,}"),
    CredentialPattern("bitbucket password", ("ATBB",), rf"{_EDGE}ATBB[A-Za-z0-9]{{28,}}"),
    # Models
    CredentialPattern("anthropic key", ("sk-ant-",), r"sk-ant-[\w-]{20,}"),
    CredentialPattern("openrouter key", ("sk-or-",), r"sk-or-v\d-[0-9a-f]{64}"),
    CredentialPattern(
        "openai key",
        ("sk-proj-", "sk-svcacct-", "sk-admin-"),
        rf"{_EDGE}sk-(?:proj|svcacct|admin)-[\w-]{{20,}}",
    ),
    CredentialPattern(
        "model provider's key",
        ("sk-",),
        rf"{_EDGE}(?P<it>sk-[A-Za-z0-9]{{20,}}){_END}",
        is_mixed,
    ),
    CredentialPattern("hugging face token", ("hf_",), r"hf_[A-Za-z0-9]{34,}"),
    CredentialPattern("groq key", ("gsk_",), r"gsk_[A-Za-z0-9]{40,}"),
    CredentialPattern("xai key", ("xai-",), r"xai-[A-Za-z0-9]{60,}"),
    CredentialPattern("perplexity key", ("pplx-",), r"pplx-[A-Za-z0-9]{40,}"),
    CredentialPattern("replicate token", ("r8_",), rf"{_EDGE}r8_[A-Za-z0-9]{{37}}"),
    CredentialPattern("langsmith key", ("lsv2_",), r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    # Talk, mail, papers
    CredentialPattern("slack token", ("xox",), r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    CredentialPattern("slack app token", ("xapp-",), r"xapp-\d-[A-Za-z0-9-]{30,}"),
    CredentialPattern(
        "slack webhook",
        ("hooks.slack.com/",),
        r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<it>[A-Za-z0-9+/_-]{20,})",
    ),
    CredentialPattern("telegram bot token", (":AA",), r"(?<=[0-9]{8}):(?P<it>AA[\w-]{32,})"),
    CredentialPattern("discord bot token", _DIGITS, rf"{_DIGITS64}\.[\w-]{{6}}\.[\w-]{{27,}}"),
    CredentialPattern(
        "discord webhook",
        ("discord.com/api/", "discordapp.com/api/"),
        r"discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/\d{17,20}/(?P<it>[\w-]{50,})",
    ),
    CredentialPattern("twilio auth token", ("AC",), r"AC[0-9a-f]{32}:(?P<it>[0-9a-f]{32})"),
    CredentialPattern("twilio key", ("SK",), rf"{_EDGE}SK[0-9a-f]{{32}}{_END}"),
    CredentialPattern("sendgrid key", ("SG.",), rf"{_EDGE}SG\.[\w-]{{16,32}}\.[\w-]{{32,}}"),
    CredentialPattern("mailgun key", ("key-",), rf"{_EDGE}key-[0-9a-f]{{32}}{_END}"),
    CredentialPattern(
        "mailchimp key", ("-us",), rf"{_EDGE}[0-9a-f]{{32}}-us\d{{1,2}}{_END}", back=32
    ),
    CredentialPattern(
        "linear key", ("lin_api_", "lin_oauth_"), r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}"
    ),
    CredentialPattern(
        "notion token", ("secret_", "ntn_"), r"(?:secret_[A-Za-z0-9]{43}|ntn_[A-Za-z0-9]{40,})"
    ),
    CredentialPattern("figma token", ("figd_", "figo_", "figu_"), r"fig[dou]_[\w-]{36,}"),
    CredentialPattern("airtable token", ("pat",), rf"{_EDGE}pat[A-Za-z0-9]{{14}}\.[0-9a-f]{{64}}"),
    # Money, shops, watching
    CredentialPattern(
        "stripe key",
        ("sk_live_", "sk_test_", "rk_live_", "rk_test_"),
        r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}",
    ),
    CredentialPattern("webhook secret", ("whsec_",), r"whsec_[A-Za-z0-9+/=]{24,}"),
    CredentialPattern(
        "shopify token",
        ("shpat_", "shpca_", "shppa_", "shpss_"),
        r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",
    ),
    CredentialPattern("square token", ("sq0",), r"sq0(?:atp|csp)-[\w-]{22,}"),
    CredentialPattern("square access token", ("EAAA",), rf"{_EDGE}EAAA[\w-]{{60}}(?![\w\[-])"),
    CredentialPattern("facebook token", ("EAA",), rf"{_EDGE}EAA[A-Za-z0-9]{{90,}}{_END}"),
    CredentialPattern(
        "grafana token",
        ("glsa_", "glc_"),
        r"gl(?:sa_[A-Za-z0-9]{32}_[0-9a-fA-F]{8}|c_[\w+/=-]{32,})",
    ),
    CredentialPattern("new relic key", ("NRAK-",), r"NRAK-[A-Z0-9]{27}"),
    # Last, because these match anything above by its position.
    CredentialPattern(
        "authorization",
        ("bearer", "basic", "authorization"),
        r"(?i:authorization\\?[\"']?\s{0,3}[:=]\s{0,3}\\?[\"']?(?:token|apikey|key)|bearer|basic)"
        r"\s{1,3}(?P<it>[A-Za-z0-9._~+/-]{12,}+={0,2}+)(?!\[)",
        is_sent,
        small=True,
    ),
    CredentialPattern(
        "password in a url",
        ("://",),
        r"""://[^\s:/@"'`<>\[\]{}\\]{0,100}:(?P<it>[^\s/"'`<>\[\]{}$*\\]{3,200})@(?=[\w.-])""",
    ),
    CredentialPattern(
        "password of a login",
        ("machine", "default"),
        r"(?:machine\s{1,8}[^\s\[\]]{1,80}|default)\s{1,8}login\s{1,8}[^\s\[\]]{1,80}\s{1,8}"
        r"""password\s{1,8}(?P<it>[^\s\[\]$<{"'`\\]{4,})""",
    ),
    CredentialPattern(
        "password of a user",
        ("-u ", "--user"),
        r"""(?<=\s)(?:-u|--user)[ =]["']?[\w.@-]{1,64}+:(?P<it>[^\s"'`$<>{}\[\]]{4,}+)""",
        is_user_option,
    ),
    CredentialPattern(
        "password by name",
        ("pass", "pwd"),
        rf"(?:(?i:{_CHOSEN})){_MORE}(?:{_TO}|(?P<flag>\s)){_VALUE}",
        is_password,
        small=True,
    ),
    CredentialPattern(
        "secret by name",
        ("key", "secret", "token", "credential"),
        rf"(?:(?i:{_GIVEN})){_MORE}(?:{_TO}|(?P<flag>\s)){_VALUE}",
        is_secret,
        small=True,
    ),
)


_OWN = frozenset(vars(logging.makeLogRecord({})))
_FORMATTER = logging.Formatter()


class FoundSecret(NamedTuple):
    """A kind of secret and how often it was found; never the secret itself."""

    kind: str
    times: int


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text without its secrets, and what was removed from it."""

    text: str
    found: tuple[FoundSecret, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything was found."""
        return bool(self.found)


def redact_text(text: str, *, shapes: Iterable[CredentialPattern] = SHAPES) -> Redacted:
    """Replace each secret with a mark; everything else stays. Idempotent."""
    found: Counter[str] = Counter()
    small = _lower_text(text)
    for shape in shapes:
        if spans := _list_secret_spans(text, shape, small=small):
            text = _replace_spans(text, spans, kind=shape.kind)
            small = _lower_text(text)
            found[shape.kind] += len(spans)
    return Redacted(text, tuple(FoundSecret(kind, times) for kind, times in found.items()))


def make_mark(kind: str) -> str:
    """Return the mark that replaces a secret of this kind."""
    return f"[redacted: {kind}]"


def _lower_text(text: str) -> str:
    """Lower the text and keep its length: only `İ` would become two characters."""
    return text.replace("\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}", "I").lower()


def _list_secret_spans(text: str, shape: CredentialPattern, *, small: str) -> list[tuple[int, int]]:
    """List the spans of one shape's secrets, in order and without overlaps."""
    looked = small if shape.small else text
    words = [word for word in shape.words if word in looked]
    if not words:
        return []  # the usual case, for most shapes in most texts
    spans: list[tuple[int, int]] = []
    end = 0
    for span in sorted(
        span for word in words for span in _iterate_secret_spans(looked, text, word, shape)
    ):
        if span[0] >= end:
            spans.append(span)
            end = span[1]
    return spans


def _iterate_secret_spans(
    looked: str, text: str, word: str, shape: CredentialPattern
) -> Iterator[tuple[int, int]]:
    try_at, at = compile_pattern(shape.pattern).match, looked.find(word)
    while at >= 0:
        match = try_at(text, at - shape.back) if at >= shape.back else None
        if match is not None and (shape.judge is None or shape.judge(match)):
            yield _choose_secret_span(match)
            at = looked.find(word, match.end())
        else:
            at = looked.find(word, at + 1)


def _choose_secret_span(match: "re.Match[str]") -> tuple[int, int]:
    parts = match.re.groupindex
    return next((match.span(name) for name in PARTS if name in parts and match[name]), match.span())


def _replace_spans(text: str, spans: list[tuple[int, int]], *, kind: str) -> str:
    pieces: list[str] = []
    at = 0
    for start, end in spans:
        pieces += (text[at:start], make_mark(kind))
        at = end
    return "".join((*pieces, text[at:]))


class Redacting(logging.Filter):
    """Cleans log records: message and arguments, exception text, stack, extra fields.

    Put it on handlers: a logger's own filters do not see what its children log.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Clean the record in place and always let it pass."""
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - arguments that do not fit: logging says so itself
            message = f"{record.msg} {record.args}"
        if clean := redact_text(message):
            record.msg, record.args = clean.text, None
        if record.exc_info and not record.exc_text:
            said = _FORMATTER.formatException(record.exc_info)
            if redact_text(said):
                # The exception itself still holds the secret: pass on only its cleaned text.
                record.exc_text, record.exc_info = said, None
        if record.exc_text:
            record.exc_text = redact_text(record.exc_text).text
        if record.stack_info:
            record.stack_info = redact_text(record.stack_info).text
        for name, value in vars(record).items():
            if name not in _OWN and isinstance(value, str):
                setattr(record, name, redact_text(value).text)
        return True


def redact_event(one: Logged) -> Logged:
    """Remove secrets from a message's texts, call arguments and clip; other events stay."""
    event = one.event
    if not isinstance(event, UserSaid | ModelSaid | ToolReturned):
        return one
    changes: dict[str, Any] = {"parts": _redact_parts(event.parts), "native": None}
    if not isinstance(event, ModelSaid) and event.clip is not None:
        parts = _redact_parts(event.clip.parts)
        changes["clip"] = msgspec.structs.replace(event.clip, parts=parts)
    return Logged(one.seq, msgspec.structs.replace(event, **changes))


def _redact_parts(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    return tuple(
        msgspec.structs.replace(one, text=redact_text(one.text).text)
        if isinstance(one, Text)
        else msgspec.structs.replace(one, arguments=redact_text(one.arguments).text)
        if isinstance(one, Call)
        else one
        for one in parts
    )
