"""What is known beside the exchanges: the truth log of a server, processes that are watched, runs that are checked."""
