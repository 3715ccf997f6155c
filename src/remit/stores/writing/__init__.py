"""The write path: events become lines, lines become pages, and one thread redacts and writes the pages."""
