"""The tool `fetch`: checks an address, requests it, and turns the response into text."""
