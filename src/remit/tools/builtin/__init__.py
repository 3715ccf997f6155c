"""The tools that come with remit, and their shared workspace."""
