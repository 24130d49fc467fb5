"""Text by language: detection, words, lemmas, stop words, and whether a phrase is mentioned."""

from __future__ import annotations

import functools
import re
import threading
import unicodedata
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal, get_args

from dialore.errors import UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
LANGUAGE_NAMES: dict[Language, str] = {"en": "English", "zh": "Chinese"}

_CJK = re.compile(r"[㐀-䶿一-鿿]")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*", re.UNICODE)
_ZH_PIECE = re.compile(r"[㐀-䶿一-鿿]+|[^\W_㐀-䶿一-鿿]+(?:['’][^\W_㐀-䶿一-鿿]+)*")
# English clitics that the lemmatiser does not know as words of their own, and the stems that they leave behind.
_CLITIC = re.compile(r"(?:n't|'s|'re|'ve|'ll|'d|'m)+$")
_IRREGULAR = {"ca": "can", "wo": "will", "sha": "shall", "ai": "is"}
# Where one sentence ends and words beside each other no longer belong together; "Dr. Who" and "J. K. Rowling" do.
_SENTENCE_END = re.compile(
    r"(?:[!?;…]|(?<!\bmr)(?<!\bms)(?<!\bmrs)(?<!\bdr)(?<!\bst)(?<!\bvs)(?<!\bjr)(?<!\bsr)(?<!\b[a-z])\.)[\"'”’)]*\s"
    r"|[\n。！？；，、：]",
    re.IGNORECASE,
)


def check_language(name: str) -> Language:
    """The language of that name; raises UnknownNameError for any other."""
    for language in LANGUAGES:
        if name == language:
            return language
    raise UnknownNameError("language", name, LANGUAGES)


def detect_language(text: str) -> Language:
    """Chinese where at least a tenth of the letters are Chinese characters, else English."""
    wide = len(_CJK.findall(text))
    letters = sum(1 for character in text if character.isalpha())
    return "zh" if wide and wide * 10 >= letters else "en"


def is_chinese(text: str) -> bool:
    """Whether the text holds any Chinese character."""
    return _CJK.search(text) is not None


def normalise(text: str) -> str:
    """Compatibility-normalised, lower-case text with straight apostrophes, single spaces and no underscores."""
    return _folded_phrase(text) if len(text) <= _PHRASE else _folded(text)


def _folded(text: str) -> str:
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).replace("’", "'")
    return " ".join(text.lower().replace("_", " ").split())


_folded_phrase = functools.lru_cache(maxsize=1 << 16)(_folded)
_PHRASE = 48
"""Characters of what is remembered: concepts and words come again and again."""


@functools.lru_cache(maxsize=1)
def _segmenter() -> Any:  # noqa: ANN401 - the library is untyped
    """The jieba tokenizer with its dictionary loaded, quietly."""
    import logging
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import jieba
    jieba.setLogLevel(logging.ERROR)
    jieba.initialize()
    return jieba


def words(text: str, language: Language) -> list[str]:
    """The words of a text in order, lower-cased, punctuation dropped; Chinese is segmented by jieba."""
    folded = normalise(text)
    if language == "en":
        if "'" not in folded:
            return _WORD.findall(folded)
        return [word for match in _WORD.findall(folded) if (word := _without_clitics(match))]
    found: list[str] = []
    for piece in _ZH_PIECE.findall(folded):
        found.extend(_segmenter().lcut(piece) if is_chinese(piece) else [piece])
    return found


def _without_clitics(word: str) -> str:
    bare = _CLITIC.sub("", word)
    return _IRREGULAR.get(bare, bare) if word.startswith("n't", len(bare)) else bare


def sentences(text: str) -> list[str]:
    """The sentences of a text, blank ones dropped; Chinese is cut at commas too, as its words are joined unspaced."""
    return [sentence for sentence in _SENTENCE_END.split(text) if sentence.strip()]


@functools.lru_cache(maxsize=65536)
def lemma(word: str, language: Language) -> str:
    """The dictionary form of one lower-case word; a Chinese word is its own."""
    if language == "zh" or not word.isascii() or not word.isalpha():
        return word
    import simplemma

    return str(simplemma.lemmatize(word, lang="en")).lower()


def lemmas(text: str, language: Language) -> list[str]:
    """The lemmas of a text's words, in order."""
    return [lemma(word, language) for word in words(text, language)]


@functools.lru_cache(maxsize=1 << 18)
def stem(word: str) -> str:
    """The Snowball stem of an English word; joins forms that lemmas keep apart ("wedding", "wed")."""
    if not word.isascii() or not word.isalpha():
        return word
    return str(_stemmer().stemWord(word))


_threads = threading.local()  # each thread has a stemmer of its own


def _stemmer() -> Any:  # noqa: ANN401 - the library is untyped
    """This thread's stemmer: it keeps the word that it works on, so that two threads at once would mix theirs up."""
    if not hasattr(_threads, "stemmer"):
        import snowballstemmer

        _threads.stemmer = snowballstemmer.stemmer("english")
    return _threads.stemmer


@functools.lru_cache(maxsize=2)
def stop_words(language: Language) -> frozenset[str]:
    """Function words that carry no topic; a small list of our own, with lemmas and surface forms alike."""
    file = resources.files("dialore") / "data" / f"stop_words.{language}.txt"
    return frozenset(file.read_text(encoding="utf-8").split())


@functools.lru_cache(maxsize=2)
def light_words(language: Language) -> frozenset[str]:
    """Content words that say little beside others ("way", "reason", 方法); a small list of our own."""
    file = resources.files("dialore") / "data" / f"light_words.{language}.txt"
    return frozenset(file.read_text(encoding="utf-8").split())


@functools.lru_cache(maxsize=1)
def measure_words() -> frozenset[str]:
    """Chinese measure words: 个, 本, 杯."""
    file = resources.files("dialore") / "data" / "measure_words.zh.txt"
    return frozenset(file.read_text(encoding="utf-8").split())


def is_stop_word(word: str, language: Language) -> bool:
    """Whether a lower-case word is a function word of the language."""
    return word in stop_words(language) or (len(word) == 1 and language == "en")


def content_words(text: str, language: Language) -> list[str]:
    """The words of a text that are no stop words, in order."""
    stop, shortest = stop_words(language), 1 if language == "zh" else 2
    return [word for word in words(text, language) if len(word) >= shortest and word not in stop]


def content_lemmas(text: str, language: Language) -> list[str]:
    """The lemmas of a text's content words, in order; stop words are dropped by surface form and by lemma."""
    found = (lemma(word, language) for word in content_words(text, language))
    return [item for item in found if not is_stop_word(item, language)]


@functools.lru_cache(maxsize=4096)
def _rows(text: str, language: Language) -> tuple[tuple[str, str], ...]:
    """Each sentence's lemmas and content lemmas, between spaces, so that a row of words is found as a substring.

    Remembered, for a dialogue's turns are asked again for each of its entities and facts.
    """
    return tuple((_row(lemmas(part, language)), _row(content_lemmas(part, language))) for part in sentences(text))


@functools.lru_cache(maxsize=1024)
def _rows_of(texts: tuple[str, ...], language: Language) -> tuple[str, str]:
    """The rows of several texts, one a line, so that a row is looked for in all of them at once."""
    rows = [row for text in texts for row in _rows(text, language)]
    return "\n".join(row for row, _ in rows), "\n".join(content for _, content in rows)


@functools.lru_cache(maxsize=16384)
def _asked(phrase: str, language: Language) -> tuple[str, str, str]:
    """A phrase as it is looked for: its characters where it is Chinese, else its lemmas and content lemmas."""
    folded = normalise(phrase).strip(" .,!?;:。，！？；：、\"'")
    if is_chinese(folded):
        return folded.replace(" ", ""), "", ""
    return "", _row(lemmas(folded, language)), _row(content_lemmas(folded, language))


@functools.lru_cache(maxsize=4096)
def _squeezed(text: str) -> str:
    return normalise(text).replace(" ", "")


def _row(found: Sequence[str]) -> str:
    return f" {' '.join(found)} " if found else ""


@functools.lru_cache(maxsize=4096)
def content_stems(text: str, language: Language) -> frozenset[str]:
    """The stems of a text's content lemmas."""
    return frozenset(stem(word) for word in content_lemmas(text, language))


def is_mentioned(phrase: str, texts: Iterable[str], language: Language) -> bool:
    """Whether a phrase is said in any of the texts, inflection and function words aside.

    A phrase is mentioned where its lemmas stand in a row in one sentence, or where its content lemmas do once stop
    words are dropped from both: "a couple days" mentions "couple of days"; "a London trip" does not mention "trip to
    London".
    Chinese is compared by characters, so that segmentation cannot hide a mention.
    """
    characters, wanted, wanted_content = _asked(phrase, language)
    if characters:
        return any(characters in _squeezed(text) for text in texts)
    row, content = _rows_of(tuple(texts), language)
    return (wanted != "" and wanted in row) or (wanted_content != "" and wanted_content in content)
