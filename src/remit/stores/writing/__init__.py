"""The one writer: events become lines, lines become pages, and one thread redacts and writes these."""
