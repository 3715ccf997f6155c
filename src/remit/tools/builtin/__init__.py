"""The tools that come with remit, and what they share: the workspace, and folders held open."""
