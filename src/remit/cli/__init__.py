"""The command line: parse, call, print. `main.py` has the list of commands; nothing else imports this package."""
