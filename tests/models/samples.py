"""Made-up credentials, one for each shape, put together here so that no scanner finds them in a file.

None was ever real: the bodies come from a seeded generator.
"""

import base64
import random
import string
from dataclasses import dataclass

HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + string.digits
MIXED = string.ascii_letters + string.digits
URL = MIXED + "_-"


@dataclass(frozen=True)
class Sample:
    """A text in which `secret` must not survive."""

    text: str
    secret: str


def made() -> dict[str, list[Sample]]:
    """Samples by the kind of their shape."""
    draw = random.Random(70)

    def some(letters: str, count: int) -> str:
        # Letters and digits in turn, so that a body is never by chance a word.
        inner = "".join(draw.choices(letters, k=count))
        return "".join(
            draw.choice([c for c in letters if c.isdigit()]) if at % 3 == 1 else c
            for at, c in enumerate(inner)
        )

    def whole(*pieces: str) -> Sample:
        return Sample("".join(pieces), "".join(pieces))

    def inside(before: str, secret: str, after: str = "") -> Sample:
        return Sample(before + secret + after, secret)

    def uuid() -> str:
        return "-".join(some(HEX, size) for size in (8, 4, 4, 4, 12))

    def pem(kind: str, *, end: str = "\n", head: str = "", whole_key: bool = True) -> Sample:
        body = end.join([*(some(MIXED + "+/", 64) for _ in range(5)), some(MIXED, 14) + "=="])
        close = f"{end}-----" + f"END {kind}-----" if whole_key else ""
        return Sample("-----" + f"BEGIN {kind}-----{end}{head}{body}{close}", body[:64])

    private = "PRIVATE" + " KEY"
    bare = "correct" + "horse7"
    return {
        "private key": [
            pem(private),
            pem(
                "RSA " + private, head="Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A1B2C3D\n\n"
            ),
            pem("OPENSSH " + private, whole_key=False),
            pem("EC " + private, end="\\n"),
            pem("EC " + private, end="\\\\n"),
            pem("PGP " + private + " BLOCK", head="Version: GnuPG v2\n\n"),
            pem("ENCRYPTED " + private, end="\n+    "),
            pem("DSA " + private, end="\n    12\t"),
        ],
        "age key": [whole("AGE-SECRET-", "KEY-1", some(UPPER, 58))],
        "1password token": [whole("ops_", "eyJ", some(MIXED, 250))],
        "sentry token": [
            whole("sntrys_", "eyJ", some(MIXED, 120)),
            whole("sntryu_", some(HEX, 64)),
        ],
        "json web token": [
            whole("ey", "J", some(URL, 30), ".ey", "J", some(URL, 60), ".", some(URL, 43))
        ],
        "aws access key": [
            whole(start, some(UPPER, 16))
            for start in ("AK" + "IA", "AS" + "IA", "AB" + "IA", "AC" + "CA")
        ],
        "aws secret key": [
            inside("aws_secret_access_key = ", some(MIXED + "/+", 40)),
            inside('"SecretAccessKey": "', some(MIXED + "/+", 40), '"'),
        ],
        "aws session token": [
            whole(start, some(MIXED + "/+", 300), "==")
            for start in ("IQoJ" + "b3JpZ2lu", "FwoG" + "ZXIvYXdz")
        ],
        "aws bedrock key": [whole("AB", "SK", some(MIXED, 120), "=")],
        "google api key": [whole("AI", "za", some(URL, 35))],
        "google access token": [whole("ya", "29.", some(URL, 120))],
        "google client secret": [whole("GOC", "SPX-", some(URL, 28))],
        "google refresh token": [whole("1/", "/0", some(URL, 60))],
        "azure account key": [
            inside("AccountName=me;Account" + "Key=", some(MIXED + "+/", 86) + "==", ";Suffix=x"),
            inside("SharedAccess" + "Key=", some(MIXED, 43) + "="),
        ],
        "azure signature": [
            inside("https://a.b/c?sv=2022&s" + "ig=", some(MIXED, 43) + "%3D", "&se=1")
        ],
        "azure client secret": [
            whole(some(MIXED, 3), f"{digit}Q", "~", some(URL, 34)) for digit in "78"
        ],
        "azure devops token": [whole(some(MIXED, 76), "AZ", "DO", some(MIXED, 4))],
        "alibaba key": [whole("LT", "AI", some(MIXED, 20))],
        "digitalocean token": [whole(f"do{kind}_", "v1_", some(HEX, 64)) for kind in "opr"],
        "heroku key": [whole("HR", "KU-", some(URL, 60))],
        "heroku key by name": [
            inside(f"{name}_API_KEY" + "=", uuid()) for name in ("HEROKU", "Heroku", "heroku")
        ],
        "fly token": [whole("fm", "2_", some(MIXED, 200)), whole("fo", "1_", some(URL, 43))],
        "cloudflare key": [whole("v1", ".0-", some(HEX, 24), "-", some(HEX, 146))],
        "supabase key": [whole("sb", "p_", some(HEX, 40)), whole("sb_", "secret_", some(URL, 31))],
        "planetscale token": [whole("pscale_", "tkn_", some(URL, 43))],
        "databricks token": [whole("da", "pi", some(HEX, 32), "-2")],
        "github token": [whole(f"gh{kind}", "_", some(MIXED, 36)) for kind in "pousr"],
        "github fine-grained token": [
            whole("github_", "pat_", some(MIXED, 22), "_", some(MIXED, 59))
        ],
        "gitlab token": [
            whole(f"gl{kind}", "-", some(URL, 20))
            for kind in ("pat", "dt", "rt", "ptt", "cbt", "ft", "soat", "agent", "imt")
        ],
        "npm token": [whole("np", "m_", some(MIXED, 36))],
        "pypi token": [whole("pypi-", "AgEI", some(URL, 150))],
        "rubygems key": [whole("ruby", "gems_", some(HEX, 48))],
        "nuget key": [whole("oy", "2", some(string.ascii_lowercase + string.digits, 43))],
        "artifactory key": [whole("AK", "Cp", some(MIXED, 69))],
        "docker token": [
            whole("dckr", "_pat_", some(URL, 27)),
            whole("dckr", "_oat_", some(URL, 32)),
        ],
        "docker login": [
            inside('{"au' + 'th": "', base64.b64encode(b"someone:" + b"word1234").decode())
        ],
        "terraform token": [whole(some(MIXED, 14), ".atlas", "v1.", some(URL, 67))],
        "pulumi token": [whole("pu", "l-", some(HEX, 40))],
        "vault token": [whole(f"hv{kind}", ".", some(URL, 90)) for kind in "sbr"],
        "vault token, old": [inside("s" + ".", some(MIXED, 24))],
        "doppler token": [whole("dp.", "pt.", some(MIXED, 43))],
        "postman key": [whole("PM", "AK-", some(HEX, 24), "-", some(HEX, 34))],
        "atlassian token": [
            whole("AT", f"{kind}TT3", some(URL, 180), "=1A2B3C4D") for kind in "AC"
        ],
        "bitbucket password": [whole("AT", "BB", some(MIXED, 32))],
        "anthropic key": [whole("sk-", "ant-", "api03-", some(URL, 93), "AA")],
        "openrouter key": [whole("sk-", "or-v1-", some(HEX, 64))],
        "openai key": [
            whole("sk-", f"{kind}-", some(URL, 120)) for kind in ("proj", "svcacct", "admin")
        ],
        "model provider's key": [
            whole("sk", "-", some(MIXED, 48)),
            whole("sk", "-", some(HEX, 32)),
        ],
        "hugging face token": [whole("h", "f_", some(MIXED, 34))],
        "groq key": [whole("gs", "k_", some(MIXED, 52))],
        "xai key": [whole("xa", "i-", some(MIXED, 80))],
        "perplexity key": [whole("pp", "lx-", some(MIXED, 48))],
        "replicate token": [whole("r", "8_", some(MIXED, 37))],
        "langsmith key": [whole("lsv", "2_pt_", some(HEX, 32), "_", some(HEX, 10))],
        "slack token": [
            whole(f"xo{kind}", "-", some(string.digits, 12), "-", some(MIXED, 24))
            for kind in ("xb", "xp", "xa", "xo", "xr", "xs", "xe")
        ],
        "slack app token": [
            whole("xa", "pp-1-", some(UPPER, 11), "-", some(string.digits, 13), "-", some(HEX, 64))
        ],
        "slack webhook": [
            inside(
                "https://hooks.slack" + ".com/services/",
                "T" + some(UPPER, 9) + "/B" + some(UPPER, 9) + "/" + some(MIXED, 24),
            )
        ],
        "telegram bot token": [whole(some(string.digits, 10), ":A", "A", some(URL, 33))],
        "discord bot token": [
            whole(
                base64.b64encode(b"%d23456789012345678" % first)[:24].decode(),
                ".",
                some(URL, 6),
                ".",
                some(URL, 38),
            )
            for first in range(1, 10)
        ],
        "discord webhook": [
            inside(f"https://{site}" + ".com/api/webhooks/123456789012345678/", some(URL, 68))
            for site in ("discord", "discordapp")
        ],
        "twilio auth token": [inside("A" + "C" + some(HEX, 32) + ":", some(HEX, 32))],
        "twilio key": [whole("S", "K", some(HEX, 32))],
        "sendgrid key": [whole("S", "G.", some(URL, 22), ".", some(URL, 43))],
        "mailgun key": [whole("ke", "y-", some(HEX, 32))],
        "mailchimp key": [whole(some(HEX, 32), "-u", "s14")],
        "linear key": [whole("lin_", f"{kind}_", some(MIXED, 40)) for kind in ("api", "oauth")],
        "notion token": [whole("secr", "et_", some(MIXED, 43)), whole("nt", "n_", some(MIXED, 46))],
        "figma token": [whole("fi", f"g{kind}_", some(URL, 40)) for kind in "dou"],
        "airtable token": [whole("pa", "t", some(MIXED, 14), ".", some(HEX, 64))],
        "stripe key": [
            whole(f"{kind}_", mode, some(MIXED, 24))
            for kind in ("sk", "rk")
            for mode in ("live_", "test_")
        ],
        "webhook secret": [whole("wh", "sec_", some(MIXED, 32))],
        "shopify token": [
            whole(f"shp{kind}", "_", some(HEX, 32)) for kind in ("at", "ca", "pa", "ss")
        ],
        "square token": [whole("sq0", "csp-", some(URL, 43)), whole("sq0", "atp-", some(URL, 22))],
        "square access token": [whole("EA", "AA", some(URL, 60))],
        "facebook token": [whole("EA", "AB", some(MIXED, 150))],
        "grafana token": [
            whole("gl", "sa_", some(MIXED, 32), "_", some(HEX, 8)),
            whole("gl", "c_", some(MIXED, 60), "=="),
        ],
        "new relic key": [whole("NR", "AK-", some(UPPER, 27))],
        "authorization": [
            inside("Authorization: Bea" + "rer ", some(URL, 40)),
            inside(
                '-H "authorization: bas' + "ic ",
                base64.b64encode(b"some1:" + b"word12345").decode(),
                '"',
            ),
            inside("Authorization: Tok" + "en ", some(HEX, 40)),
            inside("{'Authorization': 'Bea" + "rer ", some(MIXED, 32), "'}"),
        ],
        "password in a url": [
            inside(start, some(MIXED, 12), "@db.example.org/x")
            for start in (
                "postgres:" + "//me:",
                "mongodb+srv:" + "//me:",
                "redis:" + "//:",
                "https:" + "//me:",
            )
        ]
        + [inside("amqp:" + "//me:", "p@ss:" + some(MIXED, 8), "@host/")],
        "password of a login": [
            inside(f"{start} login me pass" + "word ", some(MIXED, 9))
            for start in ("machine a.b", "default")
        ],
        "password of a user": [
            inside("curl -sS -" + "u me:", some(MIXED, 9), " https://a.b"),
            inside("curl --us" + "er 'me:", some(MIXED, 9), "' https://a.b"),
        ],
        "password by name": [
            inside("PASSWORD" + "=", bare),
            inside("export DB_PASS" + "=", bare),
            inside("password" + ": ", bare),
            inside('"passwd"' + ': "', bare, '", "x": 1'),
            inside('{\\"pwd\\"' + ': \\"', bare, '\\"}'),
            inside("config['password']" + " = '", bare, "'"),
            inside("connect(password" + '="', bare, '")'),
            inside("mysql --password" + " ", bare),
            inside("Server=x;Password" + "=", bare + "!", ";Db=y"),
            inside("Passphrase" + " := `", bare, "`"),
        ],
        "secret by name": [
            inside("API_KEY" + "=", some(MIXED, 24)),
            inside("apiKey" + ': "', some(MIXED, 32), '",'),
            inside("client_secret" + " = '", some(URL, 40), "'"),
            inside("secret_key_base" + ": ", some(HEX, 128)),
            inside('"access_token"' + ':"', some(URL, 64), '"'),
            inside("//registry.npmjs.org/:_authToken" + "=", uuid()),
            inside("tool --api-key" + " ", some(MIXED, 24)),
            inside("my_credential" + ": ", some(MIXED, 30)),
            inside('{\\"token\\"' + ': \\"', some(HEX, 40), '\\"}'),
        ],
    }


SAMPLES = made()
