"""Readers of events: words for people, and the page. They hold nothing that the journal does not have."""
