"""How load is made: arrivals (open loop), warm-up, cancelling on purpose, reasons to stop."""
