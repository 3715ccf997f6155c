"""Code that both databases share: tables, migrations, and the interface of a database."""
