"""The output of commands: the live tree, plain lines, tables, JSON, and the words in them."""
