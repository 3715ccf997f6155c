"""Plain data types used by the whole package: messages, events, limits, outcomes, commands, ports, text."""
