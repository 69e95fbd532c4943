"""The shapes of credentials: one row each, by the letters that makers put into them.

Knows how keys look, and where a value is a secret by its name. Refuses to know what is done about
one, and never asks whether a key is live.

Linear on any text: a pattern is tried only where one of its words stands. One that needs nothing
behind its body either fails within its least length or takes all that it read; where something must
follow, the body cannot be given back (`++`), and starts only at an edge or is bounded.

Brackets belong to no body and make no edge: `[redacted: …]` neither matches nor lets a neighbour
match that did not match before, so redacting twice is redacting once.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TypeAlias

from foldline.models.secret_guess import is_mixed, is_password, is_secret, is_sent, is_user_option

PARTS = ("it", "bare")
Judge: TypeAlias = Callable[["re.Match[str]"], bool]


class CredentialPattern(NamedTuple):
    """One kind of credential: a group of `PARTS` is the secret, or all of the match is."""

    kind: str
    words: tuple[str, ...]
    """Every match begins with one of them, or `back` characters before one."""
    pattern: str
    judge: Judge | None = None
    """Has the last word, where letters alone do not tell a secret from a name."""
    back: int = 0
    small: bool = False
    """Whether the words stand for themselves in large letters too."""


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compiled when first needed: most texts hold no word of most rows."""
    return re.compile(pattern)


# Not inside a longer word; "\n" in quoted text ends one. A bracket is no edge, see above.
_EDGE = r"(?:(?<![A-Za-z0-9_+\]-])|(?<=\\[nrt]))"
_END = r"(?![A-Za-z0-9\[])"
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_IS = r"""(?:\\?["'`]\]?)?\s{0,4}(?::=|=>|==?|:)\s{0,4}\\?["'`]?"""  # from a name to its value

# Between the lines of a key in PEM: line ends, as such or written out, quotes and the signs of
# diffs, quotations and numbered lines.
_GAP = r"""(?:[\s"'+|>,:→]|\\{1,4}[nrt]|\d{1,6}(?=[\s|:→])){0,40}+"""
_LINES = rf"(?:{_GAP}[A-Za-z-]{{4,12}}: [^\n\\]{{1,80}}+){{0,4}}+(?:{_GAP}[A-Za-z0-9+/=]{{16,}}+)"
_PEM = (
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    rf"(?:{_LINES}*+(?:{_GAP}[A-Za-z0-9+/=]{{1,15}}+){{0,2}}+{_GAP}"
    rf"-----END [A-Z0-9 ]{{0,40}}PRIVATE KEY(?: BLOCK)?-----|{_LINES}++)"
)
# The first part of a bot's token is its number in base64, and digits leave few letters there.
_DIGITS = ("MT", "Mj", "Mz", "ND", "NT", "Nj", "Nz", "OD", "OT")  # 1… to 9…
_DIGITS64 = r"(?:[MNO][DTjz][AEIMQUYcgk][w-z0-5]){5,6}\w{0,3}"

# What names end in, whose values are secrets: those that people choose, those that machines give.
_CHOSEN = r"passphrase|passw(?:or)?d|(?<=[_-])pass|pwd"
_GIVEN = r"key|secret|token|credential"
_MORE = r"(?P<more>[_-]\w{0,20}+|\d{1,3}|[A-Z]\w{0,20}+|)"
_TO = r"""(?:\\?["'`]\]?)?(?P<is>\s{0,8}(?::=|=>|={1,3}|:)\s{0,8})"""
_VALUE = (
    r"""(?:(?P<quote>\\?["'`])(?P<it>[^\s"'`\\\[\]<>{}]{6,}+)(?=["'`\\\s]|$)"""
    r"""|(?P<bare>[^\s"'`,;:()\[\]{}<>\\=&|]{6,}+={0,2}+)(?![\[(]))"""
)

SHAPES: tuple[CredentialPattern, ...] = (
    # Keys that are several lines, or hold others inside: first.
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
    # Anything, by the place it stands in: last, because these hold all of the above.
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
