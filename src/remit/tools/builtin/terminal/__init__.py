"""The tool `terminal`: parses commands for rules, runs them without secrets in the environment, bounds their output."""
