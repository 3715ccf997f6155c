"""`fetch`: addresses read in one way, checked, asked, and made text of."""
