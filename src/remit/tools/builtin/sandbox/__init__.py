"""What commands and file tools may touch: cages of bubblewrap, and places nobody writes to."""
