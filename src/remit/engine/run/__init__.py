"""One run, turn by turn: the only loop there is."""
