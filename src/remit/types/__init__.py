"""Plain data that every floor speaks of: messages, events, limits, outcomes, commands, ports, text."""
