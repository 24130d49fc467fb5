"""Statements with their speakers and with the time that they hold for."""

import hashlib

import sqlalchemy as sa
from alembic import op

from dialore.server.store import Moment

revision = "3"
down_revision = "2"
_TEXTS, _MOMENTS = ("speaker", "replaces", "doubts"), ("holds_from", "holds_until")


def upgrade() -> None:
    """Add the columns; what is kept is the user's, holds, and has an id of speaker, text and time."""
    for name in _TEXTS:
        op.add_column("statements", sa.Column(name, sa.Text))
    for name in _MOMENTS:
        op.add_column("statements", sa.Column(name, sa.DateTime(timezone=True)))
    texts = (sa.column(name, sa.Text) for name in ("owner", "name", "id", "text", *_TEXTS))
    table = sa.table("statements", *texts, sa.column("made", Moment))
    connection, columns = op.get_bind(), table.c
    for row in connection.execute(sa.select(table)).all():
        parts = "\t".join(("user", row.text, row.made.isoformat()))
        identifier = f"passage:{hashlib.blake2b(parts.encode(), digest_size=6).hexdigest()}"
        own = (columns.owner == row.owner, columns.name == row.name, columns.id == row.id)
        values = {"id": identifier, "speaker": "user", "replaces": "", "doubts": ""}
        connection.execute(table.update().where(*own).values(values))
