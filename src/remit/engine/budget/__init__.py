"""What may be spent: accounts, slots, requests to one model, and which model it is."""
