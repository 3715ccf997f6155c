"""What both databases share: tables, migrations, and what a database must be able to do."""
