"""Feedback of users, a row a response."""

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "feedback",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("made", sa.DateTime(timezone=True)),
        sa.Column("good", sa.Boolean),
        sa.Column("reason", sa.Text),
        sa.Column("better", sa.Text),
        sa.Column("expires", sa.DateTime(timezone=True)),
    )
    op.create_index("ix_feedback_expires", "feedback", ["expires"])
