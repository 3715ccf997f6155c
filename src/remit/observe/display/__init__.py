"""How trees look: live in a terminal, updating in a notebook, as plain lines, as HTML; one tree view for all of them."""
