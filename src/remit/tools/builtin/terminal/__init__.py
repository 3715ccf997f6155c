"""`terminal`: commands understood before they run, in an environment without secrets, their output bounded."""
