"""Rules that paraphrase English text, and rules that make it less clear. All are pure and bounded by tokens.

A paraphrase leaves every name, id, number, quotation, address and placeholder as it is (`spans.protected`). The number rule may
write a word as a number or a date in another order, but it changes no number, splits no id, amount or date, and joins no two
numbers. Rules match phrases, not grammar, and leave the text alone if a match is ambiguous.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from mat_faults.spans import Edit, Fence, TextSpan, abbreviated, edit_tokens, edited, is_within_limit, protected, quoted

EditGroup: TypeAlias = tuple[Edit, ...]
"""Edits that are all applied, or none."""
RewordingRule: TypeAlias = Callable[[str], Iterator[EditGroup]]

_BEFORE: Final = r"(?<![\w'’\-])"
_AFTER: Final = r"(?![\w'’\-])"

_NOT: Final = {
    "do not": "don't", "does not": "doesn't", "did not": "didn't", "is not": "isn't", "are not": "aren't", "was not": "wasn't",
    "were not": "weren't", "has not": "hasn't", "have not": "haven't", "had not": "hadn't", "will not": "won't",
    "would not": "wouldn't", "should not": "shouldn't", "could not": "couldn't", "must not": "mustn't", "cannot": "can't",
}  # fmt: skip
_BE: Final = {
    "I am": "I'm", "you are": "you're", "we are": "we're", "they are": "they're", "I will": "I'll", "you will": "you'll",
    "we will": "we'll", "they will": "they'll", "it will": "it'll",
}  # fmt: skip
_IS: Final = {
    "it is": "it's", "that is": "that's", "there is": "there's", "what is": "what's", "where is": "where's", "who is": "who's",
}  # fmt: skip
"""Only shortened, because the short forms may also mean "has"."""
_HAVE: Final = {"I've": "I have", "you've": "you have", "we've": "we have", "they've": "they have"}

_SYNONYMS: Final = {
    "in order to": "so as to", "so as to": "in order to", "because of": "due to", "due to": "because of",
    "because": "since", "make sure": "ensure", "ensure": "make sure", "for example": "for instance",
    "for instance": "for example", "at the moment": "currently", "currently": "at the moment", "at least": "no less than",
    "no less than": "at least", "at most": "no more than", "no more than": "at most", "until": "till", "till": "until",
    "regarding": "concerning", "concerning": "regarding", "need to": "have to", "right away": "immediately",
    "immediately": "right away", "as soon as possible": "at the earliest opportunity", "asap": "as soon as possible",
    "instead of": "rather than", "rather than": "instead of", "let me know": "tell me", "find out": "determine",
    "once more": "again", "again": "once more", "although": "though", "however": "nevertheless",
    "nevertheless": "however", "therefore": "for that reason", "in addition": "additionally", "additionally": "in addition",
    "by means of": "by using", "in case of": "in the event of", "in the event of": "in case of", "except for": "apart from",
    "apart from": "except for", "unless": "except if", "prior to": "before", "as well as": "and also", "as per": "according to",
    "in accordance with": "according to", "according to": "as stated in", "with respect to": "with regard to",
    "with regard to": "with respect to", "provided that": "on condition that", "on condition that": "provided that",
}  # fmt: skip

_POLITE: Final = {
    "please": "kindly", "kindly": "please", "i want": "I would like", "i would like": "I want", "thanks": "thank you",
    "thank you": "thanks", "hi": "hello", "hello": "hi", "dear all": "hello all", "best regards": "kind regards",
    "kind regards": "best regards", "sorry": "my apologies",
}  # fmt: skip

VERBS: Final = {
    "accept": "accepted", "add": "added", "answer": "answered", "approve": "approved", "archive": "archived",
    "assign": "assigned", "attach": "attached", "block": "blocked", "book": "booked", "buy": "bought",
    "cancel": "cancelled", "change": "changed", "charge": "charged", "check": "checked", "close": "closed",
    "compare": "compared", "confirm": "confirmed", "copy": "copied", "create": "created", "delete": "deleted",
    "deliver": "delivered", "deny": "denied", "deploy": "deployed", "download": "downloaded", "fetch": "fetched",
    "find": "found", "forward": "forwarded", "include": "included", "inform": "informed", "invite": "invited",
    "list": "listed", "merge": "merged", "move": "moved", "notify": "notified", "open": "opened", "order": "ordered",
    "pay": "paid", "post": "posted", "print": "printed", "publish": "published", "refund": "refunded", "reject": "rejected",
    "release": "released", "remove": "removed", "rename": "renamed", "replace": "replaced", "reply": "replied",
    "report": "reported", "reschedule": "rescheduled", "reset": "reset", "return": "returned", "review": "reviewed",
    "run": "run", "save": "saved", "schedule": "scheduled", "search": "searched", "send": "sent", "share": "shared",
    "ship": "shipped", "start": "started", "stop": "stopped", "submit": "submitted", "summarise": "summarised",
    "summarize": "summarized", "tell": "told", "transfer": "transferred", "translate": "translated", "update": "updated",
    "upload": "uploaded", "verify": "verified", "write": "written",
}  # fmt: skip
"""Verbs that the rules know, with their participles."""
_NO_PASSIVE: Final = frozenset({"answer", "inform", "reply", "report", "search", "tell"})
_NUMBERS: Final = {
    word: str(number)
    for number, word in enumerate(
        ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"), 2
    )
}
_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip

_VERB: Final = "|".join(sorted(VERBS, key=len, reverse=True))
_START: Final = r"(?:(?<=^)|(?<=\n)|(?<=[.!?:;]\s)|(?<=[.!?:;]\s\s)|(?<=[-*•]\s)|(?<=\d[.)]\s))"
_LAST: Final = r"(?P<last>[.!](?=\s|$)|(?=\n|$))"


def _phrases(table: dict[str, str], *, follows: str = "") -> RewordingRule:
    """A rule that replaces each phrase of a table by its counterpart; the first letter keeps its case."""
    by_text = {phrase.lower(): new for phrase, new in table.items()}
    longest_first = sorted(by_text, key=lambda phrase: (-len(phrase), phrase))
    words = "|".join(re.escape(phrase).replace("'", "['’]").replace(r"\ ", r"\s+") for phrase in longest_first)
    pattern = re.compile(f"{_BEFORE}(?:{words}){_AFTER}{follows}", re.IGNORECASE)

    def rule(text: str) -> Iterator[EditGroup]:
        for match in pattern.finditer(text):
            new = by_text[" ".join(match[0].replace("’", "'").lower().split())]
            yield (Edit(TextSpan(*match.span()), _match_case(new, like=match[0])),)

    return rule


def _match_case(new: str, *, like: str) -> str:
    """New text, capitalized if the old text was; the word `I` does not count as a capital."""
    if like[:1].isupper() and not like.startswith("I "):
        return new[:1].upper() + new[1:]
    return new


_WORD_FOLLOWS: Final = r"(?=\s+\w)"
"""A verb is shortened only before another word: "as good as it is" stays."""
_CONTRACTIONS = (
    _phrases(_NOT), _phrases({short: long for long, short in _NOT.items()}), _phrases(_BE, follows=_WORD_FOLLOWS),
    _phrases({short: long for long, short in _BE.items()}), _phrases(_IS, follows=_WORD_FOLLOWS), _phrases(_HAVE),
)  # fmt: skip

_REQUEST = re.compile(
    rf"{_START}(?:Could|Can|Would|Will)\s+you\s+(?:please\s+|kindly\s+)?(?P<verb>{_VERB})\b[^.!?\n]*(?P<last>\?)(?=\s|$)"
)
_ORDER = re.compile(rf"{_START}(?P<verb>{_VERB})\s", re.IGNORECASE)


def _requests(text: str) -> Iterator[EditGroup]:
    """ "Could you send X?" as "Please send X.", and "Send X" as "Please send X"."""
    for match in _REQUEST.finditer(text):
        yield (Edit(TextSpan(match.start(), match.start("verb")), "Please "), Edit(TextSpan(*match.span("last")), "."))
    for match in _ORDER.finditer(text):
        word = match["verb"]
        if word[0].isupper():
            yield (Edit(TextSpan(*match.span("verb")), f"Please {word.lower()}"),)


_NOUNS: Final = r"(?:the|my|our|your|his|her|their|this|that|these|those|all|every|each|any)\s+[^.!?,;:\n]*?"
_LIMITS: Final = "to|for|by|before|after|until|till|if|unless|when|once|only|as|within|because|immediately|now|today|tomorrow"
_IMPERATIVE = re.compile(
    rf"{_START}(?P<head>(?:Please\s+|Kindly\s+)?(?P<no>(?:do\s+not|don['’]t|never)\s+)?(?P<verb>{_VERB})\s+)"
    rf"(?P<noun>{_NOUNS}|it|them)(?P<rest>(?:\s+(?:{_LIMITS})\b[^.!?,;:\n]*)?){_LAST}",
    re.IGNORECASE,
)
_JOINS = re.compile(r"\b(?:and|or|but|then|that|which|who|in|at|on|with|from)\b", re.IGNORECASE)
"""Words that join a second order, or a phrase that could belong to several words."""

_NUMBER_NEXT = re.compile(r"[ \t]+#?\d")


def _passive(text: str) -> Iterator[EditGroup]:
    """ "Send the report to Ann." as "The report should be sent to Ann." Only sentences with a single order."""
    for match in _IMPERATIVE.finditer(text):
        verb, noun, no = match["verb"].lower(), match["noun"], match["no"]
        if verb in _NO_PASSIVE or _JOINS.search(match[0], len(match["head"])) or not match[0][0].isupper():
            continue
        if abbreviated(text, match.start("last")) and _NUMBER_NEXT.match(text, match.end()):  # "no. 12": the sentence goes on
            continue
        subject = {"it": "it", "them": "they"}.get(noun.lower(), noun)
        should = "should never be" if no and no.lower().startswith("never") else "should not be" if no else "should be"
        first, capital = match.start("noun"), subject[:1].upper()
        if noun.lower() in ("it", "them"):
            yield (Edit(TextSpan(match.start(), match.end("noun")), f"{capital}{subject[1:]} {should} {VERBS[verb]}"),)
        else:
            yield (
                Edit(TextSpan(match.start(), first + 1), capital),
                Edit(TextSpan(match.end("noun"), match.end("noun")), f" {should} {VERBS[verb]}"),
            )


_MONTH: Final = "|".join(_MONTHS)
_UNIT: Final = (
    r"(?:milliseconds?|seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|weeks?|months?|years?|euros?|dollars?|pounds?|cents?|eur|usd|gbp"
    r"|chf|jpy|kilograms?|grams?|kg|g|kilometres?|kilometers?|metres?|meters?|miles?|km|cm|mm|m|litres?|liters?|ml|l|gb|mb|kb|tb|ms|am"
    r"|pm|a\.m\.|p\.m\.|degrees?|celsius|fahrenheit|percent)"
)
_DAY_FIRST = re.compile(rf"(?<![\w.,:/\-])(?P<day>\d{{1,2}})\s+(?P<month>{_MONTH})(?:\s+(?P<year>\d{{4}}))?\b")
_MONTH_FIRST = re.compile(rf"\b(?P<month>{_MONTH})\s+(?P<day>\d{{1,2}})(?!\d|st|nd|rd|th|[.:]\d)(?:,\s+(?P<year>\d{{4}})\b)?")
_SPELT = re.compile(rf"{_BEFORE}(?:{'|'.join(_NUMBERS)})(?=\s+[a-z])", re.IGNORECASE)
_DOZEN = re.compile(rf"{_BEFORE}a\s+dozen(?=\s+[a-z])")
_PERCENT = re.compile(r"(?<![\w.,\-])\d+(?:\.\d+)?(?P<sign>%|\s+percent\b)(?!\w)")


_READ_AS_NUMBER = re.compile(rf"(?<![~<>≤≥±+≈])[~<>≤≥±+≈]*+\d+(?:\.\d+)?%?|{_MONTH}|{'|'.join(_NUMBERS)}", re.IGNORECASE)
"""A chunk that the number rule may change must match in full: not "#12", "A-3", "1,000" or "3pm"."""
_LONGER_NUMBER = re.compile(
    r"\b(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|million|half)(?:\s+and)?\s+$", re.IGNORECASE
)
"""The text before a number word that ends a longer one: "twenty two", "half a dozen"."""
_NOT_A_DAY = re.compile(
    r"(?:\b(?:no\.?|nr\.?|number|id)[ \t]+|(?<!\d[ \t])\b(?:eur|usd|gbp|chf|jpy)[ \t]+|[#$€£¥][ \t]+"
    r"|(?<![^\s(])\d{1,2}[ \t]+|\d[ \t]*(?:[-–—/&]|\bto)[ \t]+)$",
    re.IGNORECASE,
)
"""The text before a number that is not a day: an id, an amount, the end of a range, or a part of another number."""
_NOT_ITS_DAY = re.compile(rf"[ \t]+(?:(?!\d{{4}}\b)\d|(?:{_UNIT})(?!\w))", re.IGNORECASE)
"""The text after a month and a number that is not its day: another number, or the unit of an amount."""
_NEAR: Final = 24


def _numbers(text: str) -> Iterator[EditGroup]:
    """ "three days" as "3 days", "12 March 2026" as "March 12, 2026", "5%" as "5 percent", and the last two vice versa.

    Ambiguous text stays: "pay 12 March 12, 2026". Readings within a line take precedence over those across lines.
    """
    kept = Fence(protected(text, except_for=_READ_AS_NUMBER))
    found = [(span, edit) for span, edit in _readings(text) if not kept.meets(span)]
    lines = [(span, edit) for span, edit in found if "\n" not in span.of(text)]
    fence = Fence([span for span, _ in lines])
    found = sorted(
        [*lines, *((span, edit) for span, edit in found if "\n" in span.of(text) and not fence.meets(span))],
        key=lambda item: item[0].start,
    )
    border = 0
    for index, (span, edit) in enumerate(found):
        if border <= span.start and (index + 1 == len(found) or span.end <= found[index + 1][0].start):
            yield (edit,)
        border = max(border, span.end)


def _readings(text: str) -> Iterator[tuple[TextSpan, Edit]]:
    """Every number word, date and share in a text, with the edit that writes it in another way."""
    for pattern in (_SPELT, _DOZEN):
        for match in pattern.finditer(text):
            if not _LONGER_NUMBER.search(text, max(0, match.start() - _NEAR), match.start()):
                yield TextSpan(*match.span()), Edit(TextSpan(*match.span()), _NUMBERS.get(match[0].lower(), "12"))
    for match in _DAY_FIRST.finditer(text):
        year = f", {match['year']}" if match["year"] else ""
        if not _NOT_A_DAY.search(text, max(0, match.start() - _NEAR), match.start()):
            yield TextSpan(*match.span()), Edit(TextSpan(*match.span()), f"{match['month']} {match['day']}{year}")
    for match in _MONTH_FIRST.finditer(text):
        year = f" {match['year']}" if match["year"] else ""
        if year or not _NOT_ITS_DAY.match(text, match.end()):
            yield TextSpan(*match.span()), Edit(TextSpan(*match.span()), f"{match['day']} {match['month']}{year}")
    for match in _PERCENT.finditer(text):
        yield TextSpan(*match.span()), Edit(TextSpan(*match.span("sign")), " percent" if match["sign"] == "%" else "%")


RULES: Final[dict[str, tuple[RewordingRule, ...]]] = {
    "contraction": _CONTRACTIONS,
    "synonym": (_phrases(_SYNONYMS),),
    "politeness": (_requests, _phrases(_POLITE)),
    "passive": (_passive,),
    "number": (_numbers,),
}
"""The families of rules, simplest first."""


def paraphrase(text: str, *, rule: str, limit: int) -> str:
    """The text in other words by one family of rules, or by all of them in turn ("all"), changing at most `limit` tokens.

    Edits apply from left to right until the limit is reached. Returns the text itself if no rule fits.
    """
    after, spent = text, 0
    for family in RULES if rule == "all" else (rule,):
        keep = quoted(after) if family == "number" else protected(after)  # the number rule protects what it cannot read
        groups = [group for found in RULES[family] for group in found(after)]
        taken, cost = _select_edits(after, groups, keep, limit - spent)
        after, spent = edited(after, taken), spent + cost
    return after if is_within_limit(text, after, limit) else text


def _select_edits(text: str, groups: Sequence[EditGroup], keep: Sequence[TextSpan], limit: int) -> tuple[list[Edit], int]:
    """The edits that overlap neither `keep` nor each other and fit the limit, from left to right, and their cost in tokens."""
    kept, spent, last = Fence(keep), 0, -1
    taken: list[Edit] = []
    for group in sorted(groups, key=lambda item: (item[0].span.start, -item[0].span.end)):
        if group[0].span.start < last or any(kept.meets(edit.span) for edit in group):
            continue
        cost = sum(edit_tokens(text, edit) for edit in group)
        if cost and spent + cost <= limit:
            taken += group
            spent += cost
            last = max(edit.span.end for edit in group)
    return taken, spent


# -- ids and ambiguity --------------------------------------------------------------------------------------------------------

_ID: Final = (
    r"(?:#[\w\-]*\w|(?=[\w\-]*[^\W\d_])(?=[\w\-]*\d)\w[\w\-]*|(?:(?:no\.?|nr\.?|number|id)\s+)#?[\w\-]*\d[\w\-]*)"
    r"(?![\w@]|[./:]\w)"
)
_REFERENCE = re.compile(
    rf"(?<![\w#\-./@:])(?:(?P<article>the|my|our|your|his|her|their|this|that|an?)\s+)?"
    rf"(?:(?P<noun>[A-Za-z]{{3,}})\s+)?(?P<id>{_ID})",
    re.IGNORECASE,
)
_NO_NOUN: Final = frozenset({
    "about", "after", "and", "are", "before", "between", "but", "during", "for", "from", "has", "into", "not", "number",
    "only", "since", "than", "that", "the", "then", "this", "through", "under", "until", "was", "were", "when", "where",
    "will", "with", "within", "without", "both", "either", "over", "per", "via", "like", "also", "just", "now", "please",
    *(month.lower() for month in _MONTHS),
})  # fmt: skip
_THINGS: Final = frozenset({
    "book", "change", "charge", "copy", "list", "order", "post", "report", "return", "review", "schedule", "transfer", "update",
})  # fmt: skip
"""Verbs that are usually nouns before an id: "order A17"."""
_MEASURE = re.compile(r"(?i)\d+(?:st|nd|rd|th|h|hrs?|min|s|ms|kg|g|km|cm|mm|m|l|ml|gb|mb|kb|tb|k|am|pm|eur|usd|gbp|x|d|w|y)")
_AMOUNT = re.compile(rf"(?<![\w.,#\-])(?P<sign>[$€£¥]\s?)?\d[\d.,]*\d?(?P<unit>\s*(?:{_UNIT}|[€%])(?!\w))?", re.IGNORECASE)
_DAY: Final = "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"
_DATE = re.compile(
    rf"(?<![\w.,:/\-])(?:(?P<before>on|by|before|until|till|after|since|from)\s+)?(?:"
    rf"(?P<past>last\s+(?:week|month|year|night|{_DAY})|yesterday)"
    rf"|(?P<soon>next\s+(?:week|month|year|{_DAY})|tomorrow|today|tonight)"
    rf"|(?P<day>(?:(?:{_DAY})(?:,\s+)?)?\b(?:\d{{4}}-\d\d-\d\d|\d{{1,2}}(?:st|nd|rd|th)?\s+(?:of\s+)?(?:{_MONTH})(?:,?\s+\d{{4}})?"
    rf"|(?:{_MONTH})\s+\d{{1,2}}(?:st|nd|rd|th)?(?:,\s+\d{{4}})?)|(?:{_DAY})))(?![\w\-])",
    re.IGNORECASE,
)


_ID_OR_NUMBER = re.compile(rf"(?<![\w#\-./@:])(?:{_ID}|\d{{4,}}(?![\w@\-]|[./:]\w))", re.IGNORECASE)


def ids(text: str) -> dict[str, list[TextSpan]]:
    """The ids in a text ("A17", "#12", "number 4", "20261") with their spans, in order; not amounts, dates or quotations."""
    kept = Fence(quoted(text))
    found: dict[str, list[TextSpan]] = {}
    for match in _ID_OR_NUMBER.finditer(text):
        start = match.end() - len(match[0].rpartition(" ")[2])
        span = TextSpan(start, match.end())
        if not _MEASURE.fullmatch(span.of(text)) and not kept.meets(span):
            found.setdefault(span.of(text), []).append(span)
    return found


def _vague_reference(text: str, *, pronoun: bool) -> Iterator[tuple[str, Edit]]:
    """(id, edit that makes it vague) for every reference by id."""
    for match in _REFERENCE.finditer(text):
        word = match["id"].rpartition(" ")[2].lower()
        if _MEASURE.fullmatch(word):
            continue
        noun = match["noun"] or ""
        order = match["article"] is None and noun.lower() in VERBS.keys() - _THINGS
        plain = not noun or noun.lower() in _NO_NOUN or order
        if plain:
            yield word, Edit(TextSpan(*match.span("id")), "it" if pronoun else "that one")
        elif pronoun:
            yield word, Edit(TextSpan(*match.span()), _match_case("it", like=match[0]))
        else:
            article = match["article"] or "the"
            definite = "the" if article.lower() in ("a", "an") else article
            yield (
                word,
                Edit(
                    TextSpan(*match.span()),
                    f"{_match_case(definite, like=match[0])} {noun if match['article'] else noun.lower()}",
                ),
            )


def _vague_unit(text: str) -> Iterator[tuple[str, Edit]]:
    for match in _AMOUNT.finditer(text):
        for name in ("sign", "unit"):
            if match[name]:
                yield match[0], Edit(TextSpan(*match.span(name)), "")
                break


def _vague_date(text: str) -> Iterator[tuple[str, Edit]]:
    for match in _DATE.finditer(text):
        before = match["before"] or ""
        if match["past"] or match["soon"]:
            new = "then" if before and before.lower() != "on" else "recently" if match["past"] else "soon"
        else:
            new = "then" if before and before.lower() != "on" else "that day"
        yield match[0].lower(), Edit(TextSpan(*match.span()), _match_case(f"{before} {new}".strip(), like=match[0]))


def _references(text: str) -> Iterator[tuple[str, Edit]]:
    return _vague_reference(text, pronoun=False)


def _pronouns(text: str) -> Iterator[tuple[str, Edit]]:
    return _vague_reference(text, pronoun=True)


VAGUE: Final[dict[str, Callable[[str], Iterator[tuple[str, Edit]]]]] = {
    "identifier": _references,
    "pronoun": _pronouns,
    "unit": _vague_unit,
    "date": _vague_date,
}
"""The kinds of ambiguity: "order A17" as "the order" or as "it", "5 days" as "5", "by Friday" as "by then"."""


def ambiguous(text: str, *, what: str, limit: int) -> str:
    """The text with one vague reference: the first one whose mentions can all be changed within `limit` tokens.

    The text itself if there is none. Quotations, code and addresses are left alone.
    """
    kept = Fence(quoted(text))
    mentions: dict[str, list[Edit]] = {}
    for name, edit in VAGUE[what](text):
        if not kept.meets(edit.span):
            mentions.setdefault(name, []).append(edit)
    for edits in mentions.values():
        if sum(edit_tokens(text, edit) for edit in edits) <= limit and is_within_limit(
            text, after := edited(text, edits), limit
        ):
            return after
    return text
