"""Pure: from events to what is known of a tree, and what must not be written down."""
