"""Where events and artifacts are kept. Each store is one file; `remit.ports.Store` is what they share."""
