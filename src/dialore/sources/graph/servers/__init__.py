"""The same facts on a database server: PostgreSQL and Neo4j, by the protocol of `store`."""
