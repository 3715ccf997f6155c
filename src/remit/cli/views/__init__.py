"""The output of commands: tables, JSON, the page of `remit show`, and the words in them."""
