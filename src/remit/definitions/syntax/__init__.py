"""Readers of front matter, TOML and JSON that keep line numbers and tolerate common mistakes."""
