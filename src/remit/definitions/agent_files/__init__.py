"""What one agent file says, where such files are, and the words of other systems."""
