"""The command line: parses arguments, calls the engine, prints. `main.py` lists the commands."""
