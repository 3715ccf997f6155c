"""Limits on what a project's files may decide before the user trusts the project."""
