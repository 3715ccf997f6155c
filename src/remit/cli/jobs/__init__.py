"""The work behind `remit run` and `remit resume`: set up a tree, run it, ask for approvals, print the answer."""
