"""Calendar files (iCalendar) as sections: what, when, where and who of each event."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dialore.knowledge import GROUPS
from dialore.retrieval.chunking import Paragraph, Section, Unreadable, paragraphs, row
from dialore.retrieval.groups import RefusedGroups, names_groups

_FOLD = re.compile(r"\r?\n[ \t]")
_LINE = re.compile(r"""([\w-]+)((?:;[\w-]+=(?:"[^"]*"|[^;:",]*)(?:,(?:"[^"]*"|[^;:",]*))*)*):(.*)""")
_PARAMETER = re.compile(r""";([\w-]+)=("[^"]*"|[^;:"]*)""")
_DATE = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)\d\d(Z?))?")
_ESCAPE = re.compile(r"\\([nN,;\\])")
_COMPONENTS = frozenset({"VEVENT", "VTODO", "VJOURNAL", "VFREEBUSY"})
_DATES = {"DTSTART": "Start", "DTEND": "End", "DUE": "Due"}
_PERSONS = {"ORGANIZER": "Organizer", "ATTENDEE": "Attendee"}
_TEXTS = {
    "LOCATION": "Location",
    "DURATION": "Duration",
    "RRULE": "Repeats",
    "STATUS": "Status",
    "URL": "URL",
    "COMMENT": "Comment",
}


def read_calendar(text: str) -> Iterator[Section]:
    """Yield a section for each event, under its summary.

    Raises:
        RefusedGroups: It names `groups`, which calendars cannot apply.
        Unreadable: It has no event.
    """
    method = ""
    inside: list[str] = []
    fields: list[tuple[str, str]] = []
    has_event = False
    for line in _FOLD.sub("", text).splitlines():
        match = _LINE.fullmatch(line.strip())
        if match is None:
            continue
        name, parameters, value = match[1].upper(), dict(_PARAMETER.findall(match[2])), match[3]
        if names_groups(name.removeprefix("X-")):
            raise RefusedGroups(f"its calendar names {GROUPS}, which cannot be applied")
        if name == "BEGIN":
            inside.append(value.upper())
            fields = [] if value.upper() in _COMPONENTS else fields
        elif name == "END":
            inside = inside[:-1]
            if value.upper() in _COMPONENTS and fields:
                has_event = True
                yield _section(fields, method)
        elif name == "METHOD":
            method = value
        elif inside and inside[-1] in _COMPONENTS:
            fields.append(_field(name, {key.upper(): item.strip('"') for key, item in parameters.items()}, value))
    if not has_event:
        raise Unreadable("its calendar has no event")


def _field(name: str, parameters: dict[str, str], value: str) -> tuple[str, str]:
    if name in _DATES:
        return _DATES[name], _format_date(value, parameters.get("TZID", ""))
    if name in _PERSONS:
        address = value[7:] if value.lower().startswith("mailto:") else value
        person = parameters.get("CN", "")
        return _PERSONS[name], f"{person} <{address}>" if person and person != address else address
    return _TEXTS.get(name, name), _ESCAPE.sub(lambda match: "\n" if match[1] in "nN" else match[1], value)


def _format_date(value: str, zone: str) -> str:
    match = _DATE.fullmatch(value.strip())
    if match is None:
        return value
    year, month, day, hour, minute, utc = match.groups()
    date = f"{year}-{month}-{day}"
    if hour is None:
        return date
    return " ".join(filter(None, (date, f"{hour}:{minute}", "UTC" if utc else zone)))


def _section(fields: list[tuple[str, str]], method: str) -> Section:
    """Return the section of an event: its fields as a row, then its description."""
    title = next((" ".join(value.split()) for name, value in fields if name == "SUMMARY"), "")
    shown = {*_DATES.values(), *_PERSONS.values(), *_TEXTS.values()}
    values: dict[str, list[str]] = {}
    for name, value in fields:
        if name in shown and value.strip():
            values.setdefault(name, []).append(" ".join(value.split()))
    parts = [f"Event: {title}"] if title else []
    parts += [f"Method: {method}"] if method else []
    parts += [f"{name}: {', '.join(own)}" for name, own in values.items()]
    described = [paragraph for name, value in fields if name == "DESCRIPTION" for paragraph in paragraphs(value)]
    return Section([Paragraph(row(parts)), *described], title)
