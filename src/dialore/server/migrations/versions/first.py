"""The first version: consent, statements, conversations and traces, each row one user's."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table("people", *_user(), sa.Column("consents", sa.Boolean, nullable=False))
    _make("statements", sa.Column("text", sa.Text), sa.Column("turn", sa.Text))
    _make("conversations", sa.Column("turns", sa.JSON))
    _make("traces", sa.Column("result", sa.JSON))
    op.create_table(
        "used",
        *_user(),
        sa.Column("began", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("amount", sa.BigInteger),
        sa.Column("expires", sa.DateTime(timezone=True)),
    )
    op.create_index("ix_used_expires", "used", ["expires"])
    op.create_index("ix_traces_id", "traces", ["id"])


def _make(name: str, *columns: sa.Column[Any]) -> None:
    own: tuple[sa.Column[Any], ...] = (
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("made", sa.DateTime(timezone=True)),
        *columns,
    )
    op.create_table(name, *_user(), *own, sa.Column("expires", sa.DateTime(timezone=True)))
    op.create_index(f"ix_{name}_expires", name, ["expires"])


def _user() -> tuple[sa.Column[Any], ...]:
    return sa.Column("owner", sa.Text, primary_key=True), sa.Column("name", sa.Text, primary_key=True)
