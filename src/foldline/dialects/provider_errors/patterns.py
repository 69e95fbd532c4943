"""What providers say when they refuse a request, as rows.

Knows wordings, codes and what their numbers count. Refuses to know how an error was wrapped, and in
which order the tables are asked.

The patterns are for text in small letters. Every gap and number in them is bounded, so a search is
linear in the text. They are compiled when the first error is read.

    <limit> <count>   what was allowed, what was sent      <over>     how much too much was sent
    <below>           a limit that is itself not allowed   <n> <..>   another number, a short gap
"""

import re
from functools import cache
from typing import Literal

Kind = Literal[
    "tokens", "bytes", "media", "output", "rate", "auth", "overloaded", "unreachable", "other"
]

# The order matters: a sum of input and output is an overflow, the output alone is not.
NUMBERS: tuple[tuple[Kind, str], ...] = (
    ("rate", r"limit <limit>,(?: used <n>,)? requested <count>"),
    ("tokens", r"exceed context limit: <count> \+ <n> > <limit>"),
    ("tokens", r"prompt is too long: <count> tokens > <limit> maximum"),
    ("tokens", r"prompt is too long: <count>, model maximum context length: <limit>"),
    ("output", r"max_tokens: <count> > <limit>, which is the maximum"),
    ("tokens", r"context length is <limit> tokens and your request has <count> input tokens"),
    # This count is of characters: no use to anybody who counts tokens.
    (
        "tokens",
        (
            r"maximum context length is <limit> tokens\. however, you requested <n> output"
            r" tokens and your prompt contains <n> characters"
        ),
    ),
    (
        "tokens",
        (
            r"maximum context length is <limit> tokens\. however, you requested <n> output"
            r" tokens and your prompt contains (?:at least )?<count> input tokens"
        ),
    ),
    (
        "tokens",
        (
            r"maximum context length is <limit> tokens[.,] however,? (?:you requested"
            r"|your messages resulted in|your request has)(?: about)? <count> (?:input )?tokens"
        ),
    ),
    ("tokens", r"configured limit of <limit> tokens\. your messages resulted in <count> tokens"),
    ("tokens", r"maximum input length is <limit> tokens"),
    ("output", r"supports at most <limit> completion tokens, whereas you provided <count>"),
    (
        "bytes",
        (
            r"(?:content|text|output|arguments|input(?:\[\d{1,9}\])?|prompt|instructions)': string"
            r" too long\. expected a string with maximum length <limit>, but got a string with"
            r" length <count>"
        ),
    ),
    ("tokens", r"prompt token count of <count> exceeds the limit of <limit>"),
    (
        "tokens",
        (
            r"input token count(?: \(<count>\))? exceeds the maximum number of tokens allowed"
            r" \(?<limit>\)?"
        ),
    ),
    ("tokens", r"input token count is <count> but (?:the )?model (?:only )?supports up to <limit>"),
    (
        "output",
        (
            r"maxoutputtokens value of <count> but the supported range is from \d{1,9}"
            r" \(inclusive\) to <below> \(exclusive\)"
        ),
    ),
    ("bytes", r"payload size exceeds the limit: <limit> bytes"),
    ("output", r"maximum tokens you requested exceeds the model limit of <limit>"),
    ("tokens", r"prompt contains <count> tokens<..>too large for model with <limit> maximum"),
    ("tokens", r"size limit exceeded by <over> tokens<..>limit for this model is <limit>"),
    ("tokens", r"tokens in the prompt cannot exceed <limit> - received <count>"),
    ("output", r"max.?tokens must be less than or equal to <limit><..>received <count>"),
    ("tokens", r"maximum prompt length is <limit> but the request contains <count>"),
    ("bytes", r"message larger than max \(<count> vs\. <limit>\)"),
    ("tokens", r"must be <= <limit>\. given: <count> `inputs`"),
    ("tokens", r"less than <limit> tokens\. given: <count>"),
    ("tokens", r"tokens \+ `max_new_tokens` must be <= <limit>"),
    ("output", r"`max_new_tokens` must be <= <limit>"),
    ("tokens", r"input \(<count> tokens\) is longer than the model's context length \(<limit>"),
    ("tokens", r"maximum context length of <limit> tokens\. you requested a total of <count>"),
    ("tokens", r"current length is <count> while limit is <limit>"),
    ("tokens", r"request \(<count> tokens\) exceeds the available context size \(<limit> tokens"),
    ("tokens", r"input \(<count> tokens\) is too large to process<..>batch size: <limit>"),
    ("tokens", r"prompt \(length <count>\)<..>maximum model length of <limit>"),
    ("tokens", r"prompt length <count> exceeds the max_model_len <limit>"),
    (
        "tokens",
        (
            r"input length \(?<count>(?: tokens)?\)? exceeds (?:the )?(?:model's )?maximum"
            r" (?:allowed (?:input )?length|context length)(?: of)? \(?<limit>"
        ),
    ),
    ("tokens", r"n_keep: <count> >= n_ctx: <limit>"),
    ("tokens", r"keep the first <count> tokens<..>context length of only <limit>"),
    ("tokens", r"exceeded model token limit: <limit> \(requested: <count>\)"),
    ("tokens", r"range of input length should be \[1, <limit>\]"),
    ("bytes", r"string value length \(<count>\) exceeds the maximum allowed \(<limit>"),
    # Any number may be above its maximum, so the name of the limit on the answer must stand before.
    ("output", r"max_(?:\w{1,20}_)?tokens<..>expected a value <= <limit>, but got <count>"),
    ("tokens", r"prompt too long: <count> tokens exceeds max context window of <limit>"),
    ("tokens", r"prompt has <count> tokens, but the configured context size is <limit>"),
    ("media", r"mb maximum: <count> bytes > <limit> bytes"),
    ("media", r"max allowed size(?: for many-image requests)?: <limit> pixels"),
    ("media", r"maximum of <limit> pdf pages"),
)

# What is no overflow, though it speaks of tokens, of context or of lengths.
UNPAID = (
    r"insufficient[ _](?:quota|balance|credits?|funds)|requires more credits|can only afford"
    r"|credit balance is too low|prompt tokens limit exceeded|^billing_error$"
)
HURRIED = (
    r"(?<!/)rate.?limit|throttl|too many requests|too many tokens, please wait"
    r"|(?:tokens|requests) per (?:min|hour|day)|api calls / min"
)
WRONG_FIELD = r"(?:string|array) too long\. expected|(?:string|array)_above_max_length"
CANCELLED = r"context cancell?ed"
LATE = r"deadline.?exceeded|\btimed out\b|gateway time-?out|^(?:api)?time.?out"

# Wordings without numbers, in this order; a code of a provider is a line of its own.
WORDS: tuple[tuple[Kind, str], ...] = (
    ("output", r"max_(?:\w{1,20}_)?tokens['`]? is too large|maximum output length"),
    (
        "media",
        (
            r"^\w{0,20}image_\w{1,40}$|image dimensions|image exceeds"
            r"|(?:unsupported|invalid) image\b|(?:image|audio|video|file) input is not supported"
            r"|could not process (?:image|pdf)|does(?: not|n't) support image"
            r"|too many images|at most \d{1,4} image"
        ),
    ),
    (
        "tokens",
        (
            r"^context(?:_length|_window|windowexceedederror)|^exceed_context_size"
            r"|^too_many_tokens$|^model_max_prompt_tokens"
            r"|context length exceeded|maximum context length"
            r"|exceeds? (?:the |model |model's |your )?(?:available |maximum )?"
            r"context (?:window|size|length)"
            r"|context window exceeds|longer than the (?:model's )?context length"
            r"|exceeded max context length|(?:prompt|input) is too long|prompt too long"
            r"|reduce the length of (?:the|your) (?:message|prompt|input)|too many tokens"
            r"|number of input tokens exceeds|token limit exceeded|input tokens exceed"
        ),
    ),
    (
        "bytes",
        (
            r"^request_too_large$|exceeds the maximum size|message larger than max"
            r"|(?:entity|payload|content|body) (?:is )?too large|payload size exceeds"
        ),
    ),
    (
        "auth",
        (
            r"api key not valid|(?:incorrect|invalid) (?:x-)?api.?key|^invalid_api_key$"
            r"|invalid subscription key|\bunauthorized\b"
        ),
    ),
    (
        "overloaded",
        (
            r"overloaded|^slow.?down\b|server had an error|service unavailable|bad gateway"
            r"|internal server error"
        ),
    ),
)

# Refusals of a request's form: folding does not heal them, however full the window is.
FORM = (
    r"tool.?(?:use|result|call|output|choice)|function.?(?:call|response)|thinking|reasoning"
    r"|signature|cache_control|encrypted|content.?filter|prefill|non-empty|must not be empty"
    r"|whitespace|\broles?\b|not (?:supported|permitted|found)|extra inputs|unrecognized"
    r"|duplicate item|(?:must|should) match|required (?:oneof )?(?:field|parameter|property)"
    r"|must include|missing|(?:begins|starts) with '"
    r"|does not exist|\btemperature\b|\btop_p\b"
)

_STATUS: dict[int, str] = {
    400: "invalid_request_error invalid_argument badrequesterror badrequest validationexception "
    "invalid_parameter_error failed_precondition invalidrequesterror "
    "contextwindowexceedederror",
    401: "authentication_error unauthenticated authenticationerror unrecognizedclientexception "
    "expiredtokenexception invalid_api_key",
    402: "billing_error",
    403: "permission_error permission_denied permissiondeniederror accessdeniedexception",
    404: "not_found_error not_found notfounderror resourcenotfoundexception deploymentnotfound",
    408: "modeltimeoutexception timeout apitimeouterror timeouterror",
    409: "conflict_error conflicterror",
    413: "request_too_large",
    422: "unprocessableentityerror",
    429: "rate_limit_error rate_limit_exceeded ratelimiterror resource_exhausted "
    "throttlingexception too_many_requests toomanyrequestsexception throttling "
    "servicequotaexceededexception",
    500: "api_error internal internal_error server_error internalservererror "
    "internalserverexception apiconnectionerror connectionerror",
    503: "unavailable serviceunavailableerror serviceunavailableexception modelnotreadyexception",
    504: "timeout_error deadline_exceeded",
    529: "overloaded_error",
}

_NAMED = {
    "limit": r"(?P<limit>[0-9][0-9,]{0,20})",
    "count": r"(?P<count>[0-9][0-9,]{0,20})",
    "below": r"(?P<below>[0-9][0-9,]{0,20})",
    "over": r"(?P<over>[0-9][0-9,]{0,20})",
    "n": r"[0-9][0-9,]{0,20}",
    "..": r".{0,200}?",
}


def status_of(code: str) -> int | None:
    """The HTTP status that a provider sends with a code, or an SDK with the name of an error."""
    return _statuses().get(code)


@cache
def _statuses() -> dict[str, int]:
    return {name: status for status, names in _STATUS.items() for name in names.split()}


@cache
def pattern(text: str) -> re.Pattern[str]:
    """A text of a table, compiled."""
    return re.compile(
        re.sub(r"<(limit|count|below|over|n|\.\.)>", lambda name: _NAMED[name[1]], text),
        re.ASCII | re.DOTALL | re.MULTILINE,
    )
