"""What the files of a project may not decide until the user trusts it."""
