"""Find words that command or pretend, in eleven languages: `verify` judges narratives by them.

A module of its own, because its patterns take 30 ms to compile and only narratives need them.
"""

import re
import unicodedata
from collections.abc import Iterator

from foldline.core.names import code_like

# ruff: noqa: E501, RUF001, SIM905 - words of many scripts, in readable tables

# Characters that no line of a record needs: other line ends, and marks of writing direction.
UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)
_CODES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
_JOINERS = re.compile("[\u200c-\u200f\u00ad\u034f]")
_HAN = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[^\W\d_{_HAN}]{{3,}}")
_HANS = re.compile(rf"[{_HAN}]+")
_TOKEN = re.compile(rf"[{_HAN}]|[^\W_{_HAN}](?:[^\W{_HAN}]|[./@:'-](?=\w))*")
_PASSAGE = re.compile(r"\n|(?<=[.!?;])\s|(?<=[。！？；])")
# A line with these words speaks for the user.
_VERBS = (
    r"want|ask|request|approv|confirm|agre|authori|allow|permit|prefer|told|tell|instruct|decid"
    r"|requir|demand|insist|wish|grant|sa(?:id|ys?)\b|order|expect|need|like"
)
USER = re.compile(
    rf"\b(?:users?|human|owner|operator|customer|admin(?:istrator)?)(?:['’]s)?\s+(?:\w+\s+){{0,3}}(?:{_VERBS})"
    r"|\bapprov(?:ed|als?)\b|\bauthori[sz](?:ed|ation)\b|\bconsent|\bsign(?:ed)?[ -]off\b"
    r"|\bpermission (?:\w+ ){0,2}(?:given|granted)|\bgrant\w* (?:\w+ ){0,2}permission|\bgreen light"
    r"|\b(?:be)?nutzer\w*\s+(?:\w+\s+){0,4}(?:will|möchte|wünscht|verlang|bat|bittet|erlaub|genehmig"
    r"|bestätig|zugestimm|forder|sagt|hat)|\bgenehmig|\bfreigegeben|\bfreigabe|\berlaubnis"
    r"|\busu[aá]ri[oa]\w*\s+(?:\w+\s+){0,3}(?:quier|quer|pid|ped|solicit|aprob|aprov|autoriz|permit"
    r"|confirm|orden|exig|dij|ha\b)|\baprobad|\baprovad|\bautorizad|\bpermiso\b"
    r"|\butilisat\w+\s+(?:\w+\s+){0,3}(?:veut|demand|approuv|autoris|confirm|souhait|exig|dit|a\b)"
    r"|\bapprouv|\bautoris"
    r"|\bпользовател\w*\s+(?:\w+\s+){0,3}(?:хоч|прос|попрос|треб|одобр|разреш|подтверд|сказ|вел)"
    r"|\bодобр|\bразреш(?:ен|ил)|\bподтвержден"
    r"|(?:المستخدم|مستخدم)\s+(?:\w+\s+){0,2}(?:يريد|طلب|يطلب|وافق|أذن|سمح|أكد|قال)|وافق|موافقة"
    r"|用户.{0,6}(?:要求|希望|想|同意|批准|授权|允许|确认|说|指示|需要|让)|批准|授权|已同意"
    r"|ユーザー?.{0,30}(?:希望|要求|依頼|承認|許可|指示|求め|望)|承認|許可|사용자.{0,12}(?:원|요청|승인|허가|지시)|승인|허가",
    re.IGNORECASE,
)
# A line with these words lays down a rule.
LAW = re.compile(
    r"\b(?:must|shall|should|always|never|from now on|(?:do|does) not|don['’]?t|ignor\w+|disregard"
    r"|forget|obey|overrid\w+|instructions?|goals?|mission|mandatory|required? to|(?:has|have) to"
    r"|needs? to|(?:your|new) (?:task|rule|job)s?|(?:top|highest) priority|rules?:)\b"
    r"|\b(?:muss|müssen|soll(?:en|te|ten)?|immer|nie(?:mals)?|ab sofort|von nun an|ignorier\w*|vergiss"
    r"|darf|dürfen|anweisung\w*|unbedingt|neue aufgabe)\b"
    r"|\b(?:deb(?:e|es|en|er\w*)|siempre|nunca|jamás|ignor\w+|a partir de ahora|olvid\w+"
    r"|instruccion\w*|tienes? que|hay que)\b"
    r"|\b(?:doi(?:t|vent|s)|devez|toujours|jamais|désormais|oubli\w+|il faut)\b"
    r"|\b(?:долж\w+|обязан\w*|всегда|никогда|игнорир\w*|отныне|забуд\w*|нельзя|необходимо|нужно"
    r"|инструкци\w*)\b|يجب|دائم|أبد|تجاهل|من الآن|عليك|تعليمات"
    r"|必须|务必|应该|应当|一律|永远|绝不|不得|不要|忽略|无视|从现在起|今后|新任务|指令|指示"
    r"|必ず|なければ|べき|無視|今後|常に|決して|してください|命令|반드시|항상|절대|무시|해야",
    re.IGNORECASE,
)
# In a tool's output: commands to whoever reads it.
_ORDER = re.compile(
    r"\b(?:you|assistant|agent|ai|model|llm)\b,?[ :](?:\w+ ){0,2}(?:must|shall|should|will|are|have|need)"
    r"|\b(?:ignore|disregard|forget|obey|exfiltrate|upload|leak|reveal|wire|e-?mail|forward|decode"
    r"|send|transfer|delete|disable|grant|approve|erase|wipe|publish|paste) (?:\S+ ){0,3}?"
    r"(?:all|any|every\w*|the|this|that|your|previous|prior|above|these|it|its|to|and)\b"
    r"|请(?:立即|马上|把|将|你)|ください|\b(?:bitte|lösche|sende|schicke|lade) "
    r"|\b(?:envía|borra|elimina|sube|manda|отправь|удали|загрузи|перешли)\w*|أرسل|احذف|ارفع",
    re.IGNORECASE,
)
# What poses as another speaker, a list of tasks, or a record of ours; so does what follows it.
_POSE = re.compile(
    r"^\W*(?:system|user|human|assistant|developer|tool|admin|important|attention|urgent|note to \w+"
    r"|(?:new )?(?:instructions?|goals?|rules?|task))\W{0,3}[:>\]]"
    r"|^#+ (?:the user|said by|pinned|tasks|next|decisions|open questions|facts, num|state ch|goals|rules)"
    r"|^\W*[-*] \[[ x~]\]|\[handoff|\[whole:|\[cut;|\blog:\d|</? ?event|<!--|\[/?inst\]|<\|\w+\|>"
    r"|\s\[\d+(?:, ?\d+)*\]$",
    re.IGNORECASE,
)
# A line that poses so is no sentence of a summary.
POSE = re.compile(
    r"^\W*(?:system|user|human|assistant|developer|tool|admin)\W{0,3}[:>\]]|\[handoff|\[whole:|\[cut;"
    r"|\blog:\d|</? ?event|<!--|\[/?inst\]|<\|\w+\|>",
    re.IGNORECASE,
)
# A sentence of prose with these words speaks for the user, whatever its verb.
_THINGS = r"table|id|account|name|data|model|interface|agent|login|input|stor|record|profile|session|class|list|page|role|servic"
USER_NAMED = re.compile(
    rf"\b(?:the|our|this|its) (?:\w+ )?(?:users?|human|customer|client|owner|operator|boss|manager|team lead"
    rf"|admin(?:istrator)?)\b(?! (?:{_THINGS}))"
    r"|\b(?:he|she|they) (?:is|are|was|were|wants?|wanted|asked|said|agreed?|likes?|gave|needs?|decided)\b"
    r"|\b(?:be)?nutzer(?:in|s)?\b|\busuari[oa]|\butilisat(?:eur|rice)|\bпользовател|مستخدم|用户|使用者|ユーザ|사용자"
    r"|\bkullanıcı|\bużytkowni|\butente\b|\bgebruiker|\banvändare|\bbruger|\bfelhasználó|\bngười dùng|\bpengguna"
    r"|उपयोगकर्ता|ผู้ใช้",
    re.IGNORECASE,
)
# A sentence of prose with these words permits, or commands whoever reads it.
COMMAND = re.compile(
    r"\byou(?:r|rs)?\b|\b(?:fine|ok(?:ay)?|safe|free|acceptable|good|permitted|cleared) (?:to|now|with)\b"
    r"|\b(?:is|are|was|were|be) (?:now )?(?:fine|ok(?:ay)?|safe|acceptable|allowed|permitted|cleared|approved)\b"
    r"|\bgo-?ahead\b|\bgo ahead\b|\bhappy (?:with|to|for)\b|\b(?:is|are) to (?:be )?\w+|\bmay\b"
    r"|\bcan (?:now )?be\b|\bexpect(?:s|ed)? to\b|\bsupposed to\b|\bagreed\b|\ballow(?:s|ed)?\b"
    r"|^\W*(?:(?:now|then|next|please|first|finally|also|always|simply|just),? )*"
    r"(?:add|allow|apply|approve|ask|avoid|back ?up|build|call|change|clean|clear|commit|continue|copy|create|curl"
    r"|delete|deploy|destroy|disable|do|don['’]t|download|drop|e-?mail|edit|enable|ensure|erase|execute|export|fetch"
    r"|fix|follow|forward|get|give|go|grant|ignore|implement|import|include|increase|insert|install|keep|kill|launch"
    r"|leave|let|make|merge|migrate|move|never|notify|open|overwrite|paste|post|publish|pull|purge|push|put|read"
    r"|rebase|reboot|remember|remove|rename|replace|reply|report|reset|respond|restart|restore|return|reveal|revert"
    r"|revoke|rm|rotate|run|save|send|set|share|shut|skip|start|stop|submit|switch|tell|touch|transfer|truncate"
    r"|trust|turn|uninstall|unlock|update|upgrade|upload|use|verify|wipe|wire|write)\b",
    re.IGNORECASE,
)
# A sentence of prose with these words names work to be done.
TASK = re.compile(
    r"\bnext\b|\bto-?dos?\b|\bpending\b|\bremain(?:s|ing)?\b|\boutstanding\b|\bplan(?:s|ned|ning)?\b|\bwill\b"
    r"|\bgoing to\b|\bneed(?:s|ed)?\b|\bopen (?:task|question|issue)|\btasks?\b|\b(?:steht|stehen) .{0,60}\baus\b"
    r"|\bnächste|\boffen|\bwird\b|\bpendiente|\bréste|下一步|待办|接下来|次に",
    re.IGNORECASE,
)
# Words by which anybody reports what was said: they claim nothing.
_REPORTING = re.compile(
    r"\b(?:(?:the|our|this) )?(?:users?|assistant|model|agent|conversation|session|discussion)(?:['’]s)?\b"
    r"|\b(?:wants?|wanted|ask(?:s|ed|ing)?|request(?:s|ed|ing)?|discuss\w*|explain\w*|mention\w*|describ\w*|identif\w*"
    r"|report(?:s|ed)?|not(?:es|ed)\b|stat(?:es|ed)\b|clarif\w*|specif(?:y|ies|ied)|emphasi\w*|sa(?:id|ys)|provid\w*"
    r"|includ\w*|involv\w*|regarding|concerning|about|related|work(?:s|ed|ing)? on|aim(?:s|ed|ing)?|goals?|objectives?"
    r"|tasks?|pending|current(?:ly)?|main|primary|overall|key|context|summary|further|additional(?:ly)?|also|still|next"
    r"|steps?|remain(?:s|ing)?|plan(?:s|ned)?|help|would|like|must|should|need(?:s|ed)?|please|so far|decid\w*|decisions?"
    r"|outcomes?|facts?|numbers?|questions?|open|tool calls?|results?|changes?|files?|state|order to|however"
    r"|der|die|das|nutzer\w*|benutzer\w*|assistent\w*|möchte|bittet|bat|gebeten|wurde[n]?|gespräch\w*|ziel\w*|aufgabe\w*"
    r"|entschied\w*|soll(?:en|te)?|muss)\b",
    re.IGNORECASE,
)
_GERMAN = re.compile(
    r"\b(?:der|die|das|und|ist|nicht|eine?|wurden?|mit|von|für|dem|den|sind|war|auf|im|zu)\b"
)
_CLAUSE = re.compile(r"[,;:，；、]\s*|\s+(?:and|but|or|und|aber|oder|sowie|y|pero|et|mais|и|но)\s+")
_PROPER = re.compile(r"(?<=[\w,;)] )[A-ZÀ-Þ][a-zß-ÿ]{2,}\b")
_FUNCTION = frozenset(
    "the and of was is were are in for with that this has have to on by not"
    " der die das und ist nicht eine ein wurde mit von für sind war auf"
    " el los las una que con por para está son fue les des une est dans pour avec sur"
    " что это как для при или не на".split()
)
_POSED = 2  # passages after one that poses, which count as posing too
_COMPLAINT = re.compile(r"\w(?:Error|Exception)\b|^E {2,}|\bassert|\bwarning:", re.IGNORECASE)
NOT = re.compile(
    r"\b(?:not|never|no|without|don['’]?t|cannot|can['’]t|nicht|nie|niemals|kein\w*|ohne|sin|nunca|jamais"
    r"|pas|sans|не|нельзя|никогда|без)\b|n['’]t\b|不|没|勿|别|禁|ない|ません|لا |ليس|않|말",
    re.IGNORECASE,
)
_PLAIN = frozenset(
    "the and that this with from for are was were has have had will would user users user's wants want"
    " wanted asked asks ask said says told goal goals preference preferences prefers they their them"
    " its also when then than into all any but been being which who whose there here should must may"
    " can could still yet open pending unclear whether remains remain fails failing failed done decided"
    " chosen chose decision question needs need next because instead after before while"
    " der die das den dem des ein eine einen einem und oder dass mit von für ist sind war wird werden"
    " nutzer benutzer will möchte hat haben soll sollen noch offen auch auf aus bei bitte im ins zum zur"
    " el los las una uno que con por para usuario quiere desea está del"
    " les des une est que qui dans pour avec utilisateur veut souhaite sur"
    " что это как для при пользователь хочет просит или".split()
)
_PLAIN_HAN = re.compile(
    "用户|使用者|希望|想要|要求|需要|认为|表示|目标|偏好|请|想|要|说|将|把|在|和|与|的|了|是|并|也|对|让|仍|尚未|决定|待定|问题"
    "|ユーザー?|目標|したい|する|して|した|こと|よう|です|ます|いる|から|まで|は|が|を|の|に|で|と|も|へ|ー"
)
_FAR = 1_000  # characters of a long passage that are kept before its command
_ENDING = 3  # letters by which two forms of a word may differ
_RUN = 6  # weight of a run of words: a word counts 2, a character of Han or kana 1


class WordIndex:
    """The words of a text, which can be found in other forms: fix, fixed."""

    def __init__(self, text: str) -> None:
        self._text = normalise_text(text).lower()
        self._words = {*_WORD.findall(self._text)}
        self._near: dict[str, list[str]] = {}
        for word in self._words - _PLAIN:
            self._near.setdefault(word[:3], []).append(word)

    def list_unknown_words(self, text: str) -> tuple[list[str], int]:
        """List the words of another text that occur here in no form, and count all its words."""
        low = normalise_text(text).lower()
        words = [word for word in _WORD.findall(low) if word not in _PLAIN]
        strange = [word for word in words if not self._has_word(word)]
        pieces = [p for run in _HANS.findall(low) for p in _PLAIN_HAN.split(run) if len(p) > 1]
        return strange + [p for p in pieces if p not in self._text], len(words) + len(pieces)

    def _has_word(self, word: str) -> bool:
        if word in self._words:
            return True
        stem = word[: max(4, len(word) - 3)]
        near = self._near.get(word[:3], ())
        return any(
            one.startswith(stem) or word.startswith(one)
            for one in near
            if abs(len(one) - len(word)) <= _ENDING
        )

    def has_text(self, text: str) -> bool:
        """Whether a text occurs here, in any case."""
        return normalise_text(text).lower() in self._text


def split_passages(text: str) -> list[str]:
    """Split a text into its lines and sentences."""
    return [one for one in _PASSAGE.split(text) if one.strip()]


def split_words(text: str) -> frozenset[str]:
    """Split a text into the set of its words, in small letters."""
    return frozenset(_TOKEN.findall(normalise_text(text).lower()))


def split_clauses(text: str) -> list[str]:
    """Split a sentence at its commas and conjunctions."""
    return [one.strip() for one in _CLAUSE.split(text) if one.strip()]


def drop_reporting_words(text: str) -> str:
    """Leave out the words that only say that something was said."""
    return " ".join(_REPORTING.sub(" ", text).split())


def list_proper_names(text: str) -> list[str]:
    """List words inside a sentence that are capitalised; German capitalises every noun."""
    found = [] if _GERMAN.search(text) else _PROPER.findall(text)
    return [one for one in found if one.lower() not in _PLAIN and not _REPORTING.fullmatch(one)]


def is_same_language(text: str, other: str) -> bool:
    """Whether the function words of a text are those of another; False if it has none."""
    own = {*_TOKEN.findall(text.lower())} & _FUNCTION
    found = {one for one in own if re.search(rf"\b{one}\b", other, re.IGNORECASE)}
    return bool(own) and len(found) * 2 >= len(own)


def choose_nearest_passage(text: str, said: str) -> str:
    """Choose the passage of what the user said that shares most words with a line."""
    words = {*_TOKEN.findall(normalise_text(text).lower())}
    passages = [normalise_text(one) for one in _PASSAGE.split(said) if one.strip()]
    return max(passages, key=lambda p: len(words & {*_TOKEN.findall(p.lower())}), default="")


def iterate_injected_orders(text: str) -> Iterator[str]:
    """Yield the passages of a tool's output that command or pretend."""
    posed = 0
    seen: dict[str, tuple[str, bool, re.Match[str] | None]] = {}  # tools repeat themselves
    for raw in _PASSAGE.split(text):
        again = raw in seen
        if not again:
            passage = normalise_text(raw)
            seen[raw] = passage, bool(_POSE.search(passage)), _find_command(passage)
        passage, poses, found = seen[raw]
        posed = _POSED + 1 if poses else posed - bool(passage)
        if posed > 0 or (found and not again):
            start = max(found.start() - _FAR, 0) if found else 0
            yield passage[start : start + 3 * _FAR]


def _find_command(passage: str) -> re.Match[str] | None:
    if found := _ORDER.search(passage) or USER.search(passage):
        return found
    # A complaint is no command: "error: the name must be short".
    return None if _COMPLAINT.search(passage) else LAW.search(passage)


def join_words(text: str) -> str:
    """Join the words of a text by single blanks."""
    return " ".join(_TOKEN.findall(normalise_text(text).lower()))


def iterate_word_runs(words: str) -> Iterator[str]:
    """Yield every run of joined words that is long enough to be recognised and says something."""
    every = words.split(" ")
    for at in range(len(every)):
        weight = telling = named = 0
        for end in range(at, len(every)):
            word = every[end]
            weight += 1 if _HANS.match(word) else 2
            telling += is_telling_word(word)
            named += code_like(word)
            if weight >= _RUN:
                if telling and telling + named > 1:
                    yield " ".join(every[at : end + 1])
                break


def has_telling_words(words: str) -> bool:
    """Whether joined words say something, and are not merely a name or a phrase."""
    return sum(map(is_telling_word, words.split(" "))) > 1


def is_telling_word(word: str) -> bool:
    """Whether a word says something by itself, and is not merely a name."""
    if _HANS.match(word):
        return True
    return len(word) > 2 and word not in _PLAIN and not code_like(word)  # noqa: PLR2004


def normalise_text(text: str) -> str:
    """Reduce a text to one line of plain letters, so that nothing hides in unusual characters."""
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    text = _CODES.sub("", unicodedata.normalize("NFKC", text))
    text = UNSEEN.sub(lambda found: " " if found[0].isspace() else "", text)
    return " ".join(_JOINERS.sub("", text).split())
