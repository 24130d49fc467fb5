"""Pages that hold everything they need: one base of style, script and policy for the report, the demo and others.

A page is a Jinja template below `data/` that extends `page/base.html.j2` and fills its block `body`. Its script finds
`dialore` (see `data/page/base.js`), which makes elements, reads the page's data and wires lists for the keyboard.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING

from dialore._version import __version__

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

__all__ = ["as_json", "asset", "environment", "policy", "render"]

_BASE = "page/base.js"
# What would end a script or begin a comment in it, and the two line ends that old readers of scripts take as such.
_RISKY = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def render(
    template: str,
    *,
    title: str,
    language: str = "en",
    styles: Sequence[str] = (),
    scripts: Sequence[str] = (),
    data: Mapping[str, object] | None = None,
    packed: Mapping[str, str] | None = None,
    templates: jinja2.Environment | None = None,
    **variables: object,
) -> str:
    """Return a page as text, with everything in it; it asks the network for nothing, and may not.

    Args:
        template: the page's template below `data/`.
        title: its title.
        language: the language of its own words; texts in another say so by `lang`.
        styles: style sheets below `data/`, after `page/base.css`.
        scripts: scripts below `data/`, run at the end of the page, after `page/base.js`.
        data: plain data by the id under which `dialore.data(id)` reads it.
        packed: gzipped JSON in base64 by the id under which `dialore.inflate(id)` reads it.
        templates: an environment with filters of the page's own; see `environment`.
        variables: what the template shows.
    """
    from markupsafe import Markup

    head, rest = asset(_BASE), [asset(name) for name in scripts]
    page = (templates or environment()).get_template(template)
    return page.render(
        title=title,
        language=language,
        version=__version__,
        policy=policy([head, *rest]),
        style=Markup().join(map(asset, ["page/base.css", *styles])),
        base_script=head,
        scripts=rest,
        data=[(name, as_json(value)) for name, value in (data or {}).items()],
        packed=list((packed or {}).items()),
        **variables,
    )


def environment() -> jinja2.Environment:
    """Templates of the package's own `data`, escaping what they are given; a missing variable is an error."""
    import jinja2

    loader, strict = jinja2.FunctionLoader(_read), jinja2.StrictUndefined
    return jinja2.Environment(loader=loader, autoescape=True, undefined=strict, trim_blocks=True, lstrip_blocks=True)


def asset(name: str) -> Markup:
    """Return a file below `data/` that goes into a page as it is."""
    from markupsafe import Markup

    return Markup(_read(name))  # noqa: S704 - our own file, not input


def as_json(value: object) -> Markup:
    """Plain data as JSON that may stand in a script element, whatever its texts say; raises ValueError for NaN."""
    from markupsafe import Markup

    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign, escaped in _RISKY.items():
        text = text.replace(sign, escaped)
    return Markup(text)  # noqa: S704 - escaped above


def policy(scripts: Sequence[str]) -> str:
    """Return the Content-Security-Policy of a page: its own scripts, as they stand, alone, and no network."""
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
    parts = ["default-src 'none'", "style-src 'unsafe-inline'", f"script-src {allowed}"]
    return "; ".join([*parts, "base-uri 'none'", "form-action 'none'"])


def _read(name: str) -> str:
    return resources.files("dialore").joinpath("data", *name.split("/")).read_text(encoding="utf-8")
