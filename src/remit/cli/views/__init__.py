"""How runs look: live, as lines, as tables, as JSON, in words."""
