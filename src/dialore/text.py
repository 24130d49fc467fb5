"""Text in English and Chinese: script, words, lemmas, stop words, sentences, what is mentioned, whether a turn asks.

Of other languages: which it is, and its words.
"""

from __future__ import annotations

import functools
import os
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

from dialore.errors import UnknownNameError
from dialore.files import cache_folder

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = get_args(Language)

HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002ceaf\U0002f800-\U0002fa1f"
"""The ranges of Chinese characters, for use inside the brackets of a regular expression."""
WIDE = f"{HAN}\u3000-\u303f\uff00-\uffef"
"""Chinese characters, Chinese punctuation and full-width forms, likewise: no space stands between two of them."""
_ENGLISH_ENDS, _CHINESE_ENDS = ".!?…", "。！？"
SENTENCE_ENDS = _ENGLISH_ENDS + _CHINESE_ENDS
"""The marks that can end a sentence, English and Chinese."""

CHINESE_RUN = re.compile(f"[{HAN}]+")
"""A run of Chinese characters."""

_HAN = re.compile(f"[{HAN}]")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*", re.UNICODE)
_ZH_PIECE = re.compile(rf"[{HAN}]+|[^\W_{HAN}]+(?:['’][^\W_{HAN}]+)*")
# English clitics that the lemmatiser does not know as words of their own, and the stems that they leave behind.
_CLITICS_BACKWARDS = re.compile(r"(?:t'n|s'|er'|ev'|ll'|d'|m')*+")
_IRREGULAR = {"ca": "can", "wo": "will", "sha": "shall", "ai": "is"}


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# After these a full stop ends no sentence, whatever follows.
_TITLES = _set(
    "mr mrs ms dr prof rev hon gov sen rep gen col lt sgt capt cmdr maj st mt ft messrs mme mlle vs eg ie viz cf "
    "fig figs eq eqs sec vol vols pp eds nos approx ca tel"
)
# After these it ends none where a number follows: "Chanel No. 5".
_NUMBERED = _set("al app apt art bldg ch div ed ext no op p para paras ph pt pts rm rs rte ser ver v")
# Where words beside each other no longer belong together; those of "Dr. Who", "J. K. Rowling" and "No. 5" do.
_NO_END = "".join(rf"(?<!\b{word}\.)" for word in (*sorted(_TITLES), "[a-z]"))
_NUMBER_NEXT = "|".join(rf"(?<=\b{word}\.)" for word in sorted(_NUMBERED))
_SEGMENT_END = re.compile(rf"(?i)(?:[!?;…]|\.{_NO_END}(?!(?:{_NUMBER_NEXT})\s+\d))[\"'”’)]*\s|[\n。！？；，、：]")

_YOU = r"(?:you|we|it|he|she|they|there|this|that|these|those|your)"
_ASKS = re.compile(
    r"(?i)[?？]|[吗呢](?:\s*+[。！…]*+\s*+\Z|[，,])|多[少久长远大高重]|几[点度天个年岁次号]|(?<!没)什么|怎么|为什么|哪|谁|"
    r"\b(?:tell\s+me|let\s+me\s+know|i\s+wonder|i'?m\s+curious|(?:can|could|would|do)\s+you\s+(?:recommend|suggest)|"
    r"i(?:'d|\s+would)\s+(?:like|love)\s+to\s+(?:know|hear|learn))\b"
)
# Where a question may begin, taken whole: tried anew at each comma, "and, and, and, " would take for ever.
_BEGINS = re.compile(r"(?:\A|[.!,;]\s+)(?:(?:and|so|but|well|oh|hey|yes|no|ok|also|then)\b,?\s++)*+", re.IGNORECASE)
_QUESTION = re.compile(
    r"(?i)(?:what|which|who|whose|where|when|why|how)(?:'s|'re|\s+(?:is|are|was|were|do|does|did|about|kind|sort|other|"
    rf"would|will|can|could|should|have|has|many|much|long|old|often))\b|"
    rf"(?:do|does|did|have|has|are|is|were|was|would|will|can|could|should)(?:n't)?\s+{_YOU}\b|"
    r"any\s+(?:recommendations?|suggestions?|ideas?|tips)\b"
)


_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


_CHINESE_GAP = re.compile(rf"(?<=[{WIDE}])\s+|(?<!\s)\s+(?=[{WIDE}])")


@functools.lru_cache(maxsize=8192)
def close_gaps(text: str) -> str:
    """Remove the spaces that some data sets write between Chinese words."""
    return _CHINESE_GAP.sub("", text)


def storable(text: str) -> str:
    """Return a text that files and databases take: NUL and lone halves of characters are U+FFFD, pairs are joined."""
    if not _UNSTORABLE.search(text):
        return text
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def count_noun(count: int, plural: str) -> str:
    """Return a count and its noun, which is given in the plural: "1 row", "1,200 rows", "1 piece of knowledge"."""
    if count != 1:
        return f"{count:,} {plural}"
    noun, *rest = plural.split(" ", 1)
    singular = f"{noun[:-3]}y" if noun.endswith("ies") else noun.removesuffix("s")
    return " ".join(["1", singular, *rest])


def shown_path(path: Path) -> str:
    r"""Return a path as text that can be kept and shown: of a name that is no UTF-8, each such byte as `\xff`."""
    return storable(os.fsencode(path).decode("utf-8", "backslashreplace"))


def check_language(name: str) -> Language:
    """Return the language of that name; raise UnknownNameError for any other."""
    for language in LANGUAGES:
        if name == language:
            return language
    raise UnknownNameError("language", name, LANGUAGES)


def detect_language(text: str) -> Language:
    """Chinese where at least a tenth of the letters are Chinese characters, and few are Japanese, else English."""
    if text.isascii():
        return "en"
    wide = len(_HAN.findall(text))
    letters = sum(1 for character in text if character.isalpha())
    return "zh" if wide and wide * 10 >= letters and len(_KANA.findall(text)) * 5 < wide else "en"


def _other_language(text: str) -> str:
    """Return the English name of a text's language, by script or words, if neither English nor Chinese.

    By words it is one of `data/function_words.txt`, where at least two of its function words are said, and more of them
    than English ones. Empty for English and Chinese, and where too little is said to tell.
    """
    text = text[:_TOLD_BY]
    if not text.isascii() and detect_language(text) == "zh":
        return ""
    letters = [unicodedata.name(character, "").partition(" ")[0] for character in text if character.isalpha()]
    scripts = Counter(_SCRIPTS[letter] for letter in letters if letter in _SCRIPTS)
    for script, count in scripts.most_common(1):
        if count * 3 >= len(letters):
            return next((_CLOSE_BY[script] for _ in _TELLING.finditer(text) if script in _CLOSE_BY), script)
    spoken = {word for word in _WORD.findall(text.lower().replace("’", "'")) if not word.isdigit()}
    spoken |= {part for word in spoken for part in word.split("'")}
    heard = {name: spoken & known for name, known in _function_words().items()}
    name, heard_words = max(heard.items(), key=lambda item: len(item[1]))
    least = 1 if len(spoken) <= _SHORT and any(len(word) >= _SHORT for word in heard_words) else 2
    return name if len(heard_words) >= least and len(heard_words) > len(spoken & stop_words("en")) else ""


_KANA = re.compile("[\u3041-\u30ff]")
_SAID = re.compile(r"(?<![\w/.:@])[^\W\d_]+(?![\w/@]|[.:]\w)")  # no number, and no part of an address
_TOLD_BY = 2000
_TITLE_WORDS = 8
_SMALL_IN_TITLES = _set("a an and as at but by de der des du el for from in la le of on or the to with")
_WIDE_PUNCTUATION = re.compile("[\u3001-\u3003\u3008-\u3011\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f]")
_SHORT = 4  # words of a text, and letters of a word ("merci"), with which one word can tell
_OWN_SCRIPT = "Arabic Armenian Bengali Georgian Greek Gujarati Hebrew Kannada Khmer Lao Malayalam Tamil Telugu Thai"
_SCRIPTS = {name.upper(): name for name in _OWN_SCRIPT.split()}
_SCRIPTS |= {"HIRAGANA": "Japanese", "KATAKANA": "Japanese", "HANGUL": "Korean", "CYRILLIC": "Russian"}
_SCRIPTS |= {"DEVANAGARI": "Hindi", "MYANMAR": "Burmese", "ETHIOPIC": "Amharic"}
_CLOSE_BY, _TELLING = {"Russian": "Ukrainian", "Arabic": "Persian"}, re.compile("[іїєґپچژگ]")
_NAMED = """ar=Arabic cs=Czech da=Danish de=German el=Greek es=Spanish fa=Persian fi=Finnish fr=French he=Hebrew
hi=Hindi hu=Hungarian id=Indonesian it=Italian ja=Japanese ko=Korean nl=Dutch no=Norwegian pl=Polish pt=Portuguese
ro=Romanian ru=Russian sv=Swedish th=Thai tr=Turkish uk=Ukrainian vi=Vietnamese"""
_CODES = dict(pair.split("=") for pair in _NAMED.split())


@functools.lru_cache(maxsize=1)
def _function_words() -> dict[str, frozenset[str]]:
    lines = (resources.files("dialore") / "data" / "function_words.txt").read_text(encoding="utf-8").splitlines()
    return {name: _set(words) for name, _, words in (line.partition(" ") for line in lines)}


def spoken_in(turns: Sequence[str], named: str = "") -> tuple[Language, str]:
    """Return the language of the prompts for a dialogue, and the user's own by its English name where it is another.

    It is the one that is `named`, else the last turn's. A last turn of a word or two, or that may be a title, is read
    together with the turns before it. Raises UnknownNameError if no language has the name.
    """
    if named:
        others = {name.lower(): name for name in (*_CODES.values(), *_SCRIPTS.values())} | _CODES
        if named.lower() in others:
            return "en", others[named.lower()]
        if named in LANGUAGES:
            return check_language(named), ""
        raise UnknownNameError("language", named, [*LANGUAGES, *_CODES])
    last = turns[-1] if turns else ""
    text = "\n".join(turns) if _may_be_title(last) else last
    return detect_language(text), _other_language(text)


def _may_be_title(text: str) -> bool:
    """Return whether a text may be a name or title, which says nothing about the language of its dialogue.

    It is a word or two, Latin words between wide punctuation, or up to `_TITLE_WORDS` capitalised words (apart from
    articles and prepositions) without the end of a sentence.
    """
    if _HAN.search(text):
        return False
    words_of_text = _SAID.findall(text)
    if len(words_of_text) <= 2 or _WIDE_PUNCTUATION.search(text):
        return True
    if len(words_of_text) > _TITLE_WORDS or not text.rstrip("\"'”’ ")[-1:].isalnum():
        return False
    return all(word[0].isupper() or word in _SMALL_IN_TITLES for word in words_of_text)


def is_chinese(text: str) -> bool:
    """Return whether the text holds any Chinese character."""
    return not text.isascii() and _HAN.search(text) is not None


def normalise(text: str) -> str:
    """Compatibility-normalised, lower-case text; straight apostrophes, single spaces, no underscore or unseen sign."""
    return _folded_phrase(text) if len(text) <= _PHRASE else _folded(text)


# Soft hyphens, zero-width and direction marks, and selectors of a form stand inside words and part none.
_UNSEEN = re.compile("[\xad\u034f\u061c\u0640\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]+")


def _folded(text: str) -> str:
    if not text.isascii():
        text = _UNSEEN.sub("", unicodedata.normalize("NFKC", text).replace("’", "'"))
    return " ".join(text.lower().replace("_", " ").split())


_folded_phrase = functools.lru_cache(maxsize=1 << 16)(_folded)
_PHRASE = 48  # characters of what is remembered: concepts and words come again and again


@functools.lru_cache(maxsize=1)
def segmenter() -> Any:  # noqa: ANN401 - the library is untyped
    """Return the jieba tokenizer with its dictionary loaded quietly; its cache (marshal) lies in our own folder."""
    import logging
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import jieba
    jieba.setLogLevel(logging.CRITICAL)
    jieba.dt.tmp_dir = str(cache_folder())
    jieba.initialize()
    return jieba


def words(text: str, language: Language) -> list[str]:
    """Return the words of a text in order, lower-cased, punctuation dropped; Chinese is segmented by jieba.

    Letters bear their marks; of scripts without spaces (kana, Thai, Burmese) the letters are given.
    """
    folded = normalise(text)
    pattern = _WORD if language == "en" else _ZH_PIECE
    if not folded.isascii() and _beyond_words().search(folded):
        pattern = _unicode_words()
    if language == "en":
        if "'" not in folded:
            return pattern.findall(folded)
        return [word for match in pattern.findall(folded) if (word := _without_clitics(match))]
    pieces = (segmenter().lcut(piece) if is_chinese(piece) else [piece] for piece in pattern.findall(folded))
    return [word for piece in pieces for word in piece]


UNSPACED = (
    "\u0e01-\u0e4f\u0e81-\u0ecf\u0edc-\u0edf\u1000-\u103f\u1050-\u109f\u1780-\u17d3\u1950-\u19c9\u1a20-\u1a7f"
    "\uaa60-\uaadf\u3041-\u309f"
)
"""Letters and marks of scripts that put no space between words (Thai, Lao, Burmese, Khmer, hiragana), for brackets."""


@functools.lru_cache(maxsize=1)
def marks() -> str:
    """Return the marks that letters bear, of all scripts, for use inside the brackets of a regular expression."""
    return "".join(sign for sign in map(chr, range(0x300, 0x1E900)) if unicodedata.category(sign)[0] == "M")


@functools.lru_cache(maxsize=1)
def _beyond_words() -> re.Pattern[str]:
    return re.compile(f"[{marks()}{UNSPACED}״]")


@functools.lru_cache(maxsize=1)
def _unicode_words() -> re.Pattern[str]:
    borne = f"[{marks()}]*+"
    word = rf"(?:[^\W_{HAN}{UNSPACED}]{borne})+"
    return re.compile(rf"[{HAN}]+|[{UNSPACED}]{borne}|{word}(?:['’׳״]{word})*")


def _without_clitics(word: str) -> str:
    bare = word[: len(word) - len(_CLITICS_BACKWARDS.match(word[::-1])[0])]  # type: ignore[index]
    return _IRREGULAR.get(bare, bare) if word.startswith("n't", len(bare)) else bare


def segments(text: str) -> list[str]:
    """Return the stretches (sentences, Chinese clauses) in which words belong together: fast, to match phrases by."""
    return [segment for segment in _SEGMENT_END.split(text) if segment.strip()]


@functools.lru_cache(maxsize=65536)
def lemma(word: str, language: Language) -> str:
    """Return the dictionary form of one lower-case word; a Chinese word is its own."""
    if language == "zh" or not word.isascii() or not word.isalpha():
        return word
    import simplemma

    return str(simplemma.lemmatize(word, lang="en")).lower()


@functools.lru_cache(maxsize=65536)
def is_known(word: str) -> bool:
    """Return whether the dictionary of lemmas has an English word."""
    import simplemma

    return bool(simplemma.is_known(word, lang="en"))


def lemmas(text: str, language: Language) -> list[str]:
    """Return the lemmas of a text's words, in order."""
    return [lemma(word, language) for word in words(text, language)]


@functools.lru_cache(maxsize=1 << 18)
def stem(word: str) -> str:
    """Return the Snowball stem of an English word; joins forms that lemmas keep apart ("wedding", "wed")."""
    if not word.isascii() or not word.isalpha():
        return word
    return stem_by("english", word)


_threads = threading.local()  # each thread has stemmers of its own


def stem_by(algorithm: str, word: str) -> str:
    """Return the stem of a word by this thread's stemmer, as two threads at once would mix up its state."""
    if not hasattr(_threads, algorithm):
        import Stemmer

        setattr(_threads, algorithm, Stemmer.Stemmer(algorithm, 0))
    return str(getattr(_threads, algorithm).stemWord(word))


@functools.lru_cache(maxsize=5)
def _listed(name: str) -> frozenset[str]:
    return _set((resources.files("dialore") / "data" / f"{name}.txt").read_text(encoding="utf-8"))


def stop_words(language: Language) -> frozenset[str]:
    """Return function words that carry no topic; a small list of our own, with lemmas and surface forms alike."""
    return _listed(f"stop_words.{language}")


def light_words(language: Language) -> frozenset[str]:
    """Content words that say little beside others ("way", "reason", 方法); a small list of our own."""
    return _listed(f"light_words.{language}")


def measure_words() -> frozenset[str]:
    """Chinese measure words: 个, 本, 杯."""
    return _listed("measure_words.zh")


def is_stop_word(word: str, language: Language) -> bool:
    """Return whether a lower-case word is a function word of the language."""
    # One character of a script with capitals, or a digit, is none of its own; others' are words.
    is_letter = len(word) == 1 and (word.isascii() or word != word.upper())
    return word in stop_words(language) or (language == "en" and is_letter)


def content_words(text: str, language: Language) -> list[str]:
    """Return the words of a text that are no stop words, in order."""
    return [word for word in words(text, language) if not is_stop_word(word, language)]


def content_lemmas(text: str, language: Language) -> list[str]:
    """Return the lemmas of a text's content words, in order; stop words are dropped by surface form and by lemma."""
    lemmas = (lemma(word, language) for word in content_words(text, language))
    return [item for item in lemmas if not is_stop_word(item, language)]


@functools.lru_cache(maxsize=4096)
def _rows(text: str, language: Language) -> tuple[tuple[str, str], ...]:
    """Return each sentence's lemmas and content lemmas, between spaces: a row of words is a substring of them."""
    return tuple((_row(lemmas(part, language)), _row(content_lemmas(part, language))) for part in segments(text))


@functools.lru_cache(maxsize=1024)
def _rows_of(texts: tuple[str, ...], language: Language) -> tuple[str, str]:
    """Return the rows of several texts, one a line, so that a row is looked for in all of them at once."""
    rows = [row for text in texts for row in _rows(text, language)]
    return "\n".join(row for row, _ in rows), "\n".join(content for _, content in rows)


@functools.lru_cache(maxsize=16384)
def _phrase_forms(phrase: str, language: Language) -> tuple[str, str, str]:
    """Return a phrase as it is looked for: its characters where it is Chinese, else its lemmas and content lemmas."""
    folded = normalise(phrase).strip(" .,!?;:。，！？；：、\"'")
    if is_chinese(folded):
        return folded.replace(" ", ""), "", ""
    return "", _row(lemmas(folded, language)), _row(content_lemmas(folded, language))


@functools.lru_cache(maxsize=4096)
def _squeezed(text: str) -> str:
    return normalise(text).replace(" ", "")


def _row(found: Sequence[str]) -> str:
    return f" {' '.join(found)} " if found else ""


def is_mentioned(phrase: str, texts: Iterable[str], language: Language) -> bool:
    """Return whether a phrase is said in any of the texts, inflection and function words aside.

    A phrase is mentioned where its lemmas stand in a row in one sentence, or where its content lemmas do once stop
    words are dropped from both: "a couple days" mentions "couple of days"; "a London trip" does not mention "trip to
    London".
    Chinese is compared by characters, so that segmentation cannot hide a mention.
    """
    characters, wanted, wanted_content = _phrase_forms(phrase, language)
    if characters:
        return any(characters in _squeezed(text) for text in texts)
    row, content = _rows_of(tuple(texts), language)
    return (wanted != "" and wanted in row) or (wanted_content != "" and wanted_content in content)


SENTENCE_RULES = 3
"""The version of the rules below; to be raised with every change of them, as what counts sentences is then stale."""


# After these one ends only where a word follows that begins sentences.
_SHORTENED = _set(
    "inc ltd co corp bros jr sr phd md ba ma bsc msc am pm etc usa uk us eu un jan feb mar apr jun jul aug sep sept "
    "oct nov dec mon tue wed thu fri sat sun ave blvd rd dept est univ assn"
)
_OPENERS = _set(
    "the a an this that these those it its he she they we you i in on at by for from with as but and or so if when "
    "while after before since because although however there here his her their our my your who what where why how "
    "some many most all one not no yes then thus"
)
_CLOSE = r"[\"'”’»)\]*_]*+"
_GAP = rf"(?=\s|$|[{HAN}])"
# Marks inside a title, 《摔跤吧！爸爸》, end nothing. A run of English marks that ends nothing is passed as a whole:
# each of them would read the rest of it again.
_END = re.compile(
    rf"(?P<zh>[{_CHINESE_ENDS}]+(?![^《》]{{0,30}}》)(?:[」』”’】）》\"')\]]|……)*"
    rf"|(?:(?:……)++|⋯⋯)(?:[{_ENGLISH_ENDS}]++(?!{_CLOSE}{_GAP}))?[」』”’】）》]*)"
    rf"|(?P<en>[{_ENGLISH_ENDS}]++)(?P<close>{_CLOSE}){_GAP}"
    r"|(?:[.!?]|…(?!…))++"
)
_LONGEST = 64  # letters of what may be an abbreviation, and more
_LETTER = re.compile(r"[^\W_]")
_INITIALS = re.compile(r"[A-Z]|(?:[A-Za-z]\.)+[A-Za-z]")
_NEXT = re.compile(r"\s*[\"'“‘«(\[*_]*([^\W_]*)")
_CLAUSE = re.compile(r".+?(?:(?<=[,;:，；、：—–])\s*|\s+|\Z)", re.DOTALL)


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text in order, without the white space around them; blank ones are left out.

    A Chinese sentence ends at 。！？ and ……, with the quotes and brackets that close behind them, whatever follows. An
    English one ends at . ! ? and … where white space follows and what stands there does not go on: not behind "Dr." and
    initials, not inside "3.5", not before a small letter ("Stop!" he said). Signs without a word are no sentence of
    their own. White space counts as one space: paragraphs are to be parted before.
    """
    whole = " ".join(text.split())
    spans: list[tuple[int, int]] = []
    start = 0
    letter = _LETTER.search(whole)  # signs that a text begins with stand with what follows
    for match in _END.finditer(whole, letter.start() if letter else len(whole)):
        if match["zh"] or (match["en"] and _ends(whole, match, start)):
            start = _add(spans, whole, start, match.end())
    _add(spans, whole, start, len(whole))
    return [sentence for first, end in spans if (sentence := whole[first:end].strip())]


def split_lines(text: str) -> list[str]:
    """Return the sentences of a text whose line ends part them too, as headings and list items have it."""
    return [sentence for line in text.splitlines() for sentence in split_sentences(line)]


def _add(spans: list[tuple[int, int]], text: str, start: int, end: int) -> int:
    """Add a sentence, or its signs to the one before where it has no word; where the next begins."""
    if not spans or _LETTER.search(text, start, end):
        spans.append((start, end))
    else:
        spans[-1] = (spans[-1][0], end)
    return end


def _ends(text: str, match: re.Match[str], start: int) -> bool:
    """Return whether an English mark ends the sentence that begins at `start`."""
    following = _NEXT.match(text, match.end())
    word = following[1] if following else ""
    if word[:1].islower():
        # A small letter behind a mark goes on, but for a list's or a careless writer's "?" and "!" without quotes.
        return match["en"] != "." and match["en"][0] in "!?" and not match["close"]
    if match["en"] != "." or match["close"]:
        return True
    # Only the end is looked at: a page of nothing but initials is one sentence, not to be read again at each of them.
    first = start + text.startswith(" ", start)
    stop = match.start() - text.endswith(" ", first, match.start())
    if stop <= first:
        return True
    reach = max(first, stop - _LONGEST)
    at = text.rfind(" ", reach, stop) + 1 or reach
    last = text[at:stop].lstrip("\"'“‘«([*_")
    if not last or not last[-1].isalnum():
        return True
    return _ends_after(last, word, alone=len(last) == stop - first)


def _ends_after(last: str, word: str, *, alone: bool) -> bool:
    """Return whether a full stop behind a word ends a sentence, given the word that follows."""
    bare = last.replace(".", "").lower()
    if bare in _TITLES or (bare in _NUMBERED and word[:1].isdigit()):
        return False
    if alone and (last.isdigit() or len(last) == 1):
        return False  # a list's number: "1. Open the box."
    is_short = bare in _SHORTENED or _INITIALS.fullmatch(last) is not None
    return not is_short or not word or word.lower() in _OPENERS


def split_clauses(sentence: str) -> list[str]:
    """Pieces of an over-long sentence, at commas and white space; joined in order they are the sentence again."""
    return _CLAUSE.findall(sentence)


def asks(text: str) -> bool:
    """Return whether a turn asks for information or an opinion, by its question marks and wording.

    It stands for the detector of intents that SCG-QP filters its turns by (Section 3.2), which is not published.
    """
    plain = text.replace("’", "'").strip()
    return bool(_ASKS.search(plain)) or any(_QUESTION.match(plain, at.end()) for at in _BEGINS.finditer(plain))
