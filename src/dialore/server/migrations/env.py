"""The module that Alembic runs: the migrations, on the connection and in the transaction that the store has opened."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
