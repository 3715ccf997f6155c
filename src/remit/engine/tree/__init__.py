"""One live tree: the place of each run, its journal, its stream of events, its questions to people."""
